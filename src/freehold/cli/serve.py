"""``freehold serve``."""

import logging
import sys
from typing import Annotated, Any

import typer

from freehold import resolve
from freehold.cli.options import ConfigOption, ModelArgument, with_settings
from freehold.cli.pulling import with_default_model

ShowConfig = Annotated[
    bool, typer.Option("--show-config", help="Print every setting and where it came from, and stop.")
]


@with_settings(serve=True)
def serve(
    model: ModelArgument = None, config: ConfigOption = None, show_config: ShowConfig = False, *, flags: dict[str, Any]
) -> None:
    """Serve a model behind an OpenAI-compatible HTTP API. Without MODEL: SmolLM2-135M-Instruct, fetched if missing."""
    resolved = with_default_model(resolve.serve_config, {**flags, **({"model": model} if model else {})}, config)
    if show_config:
        print(resolve.table(resolved.values))
        return
    logging.basicConfig(
        stream=sys.stderr, level=resolved.serve.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    for chatty in ("uvicorn", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    from freehold.serve.server import serve as run_server

    run_server(resolved.engine, resolved.serve)
