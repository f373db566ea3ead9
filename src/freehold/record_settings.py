"""Settings of the flight recorder become its configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freehold.config import RecordConfig


def record_config(values: Mapping[str, Any], model_path: Path) -> RecordConfig:
    """What is recorded and where, from the values of settings by name."""
    return RecordConfig(
        mode=values["record"],
        folder=values["record_dir"],
        model_path=model_path,
        sample=values["record_sample"],
        max_bytes=values["record_bytes"],
        max_age_s=values["record_age"],
    )
