"""Where an engine is in its work, as heartbeats and messages about stalls name it."""

from typing import Literal, get_args

Stage = Literal["open the model's files", "load the weights", "check the model's files"]
"""Of loading, in this order."""

LoopPlace = Literal["inbox", "plan", "submit", "collect", "apply", "publish", "masks"]
"""In the core's loop. While a step runs on the device, that is ``collect``."""

Place = Literal["idle", "start"] | Stage | LoopPlace

LOADING: frozenset[Place] = frozenset({"start", *get_args(Stage)})
