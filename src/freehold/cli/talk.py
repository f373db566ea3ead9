"""``freehold run`` and ``freehold chat``."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from freehold import resolve
from freehold.cli.options import ConfigOption, ModelArgument, with_settings
from freehold.cli.pulling import with_default_model
from freehold.config import EngineConfig
from freehold.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Generator

    from freehold.text.params import SamplingParams

Answer = Callable[[Sequence[dict[str, str]], "SamplingParams"], Iterator[str]]

Temperature = Annotated[float | None, typer.Option(help="0 takes the likeliest token each time.", show_default=False)]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens of an answer. Default: what the context holds.")]
SeedOption = Annotated[int | None, typer.Option(help="Makes answers repeatable.", show_default=False)]
System = Annotated[str | None, typer.Option(help="A system message before the chat.", show_default=False)]
Url = Annotated[str | None, typer.Option(help="Talk to a running server instead of loading the model here.")]
Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="What to say; - reads it from standard input.")]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without chat template.")]


@with_settings(serve=False, model=False)
def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Store name, path, or Hugging Face id.")],
    prompt: Prompt,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: SeedOption = None,
    system: System = None,
    raw: Raw = False,
    config: ConfigOption = None,
    *,
    flags: dict[str, Any],
) -> None:
    """Answer one prompt and stop."""
    from freehold.cli.local_model import LocalModel

    text = sys.stdin.read() if prompt == "-" else prompt
    params = _params(temperature, max_tokens, seed)
    with LocalModel(_engine_config(model, config, flags)) as local:
        _say(local.complete(text, params) if raw else local.answer([*_system(system), _user(text)], params))


@with_settings(serve=False)
def chat(
    model: ModelArgument = None,
    url: Url = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: SeedOption = None,
    system: System = None,
    config: ConfigOption = None,
    *,
    flags: dict[str, Any],
) -> None:
    """Talk with a model. Ctrl-C ends an answer; /exit, Ctrl-D or Ctrl-C at the prompt end the chat; /new forgets it."""
    params = _params(temperature, max_tokens, seed)
    if url is not None:
        from freehold.cli.remote_model import RemoteModel

        remote = RemoteModel(url, model)
        _converse(remote.answer, _system(system), params, f"{remote.model} at {url}")
        return
    from freehold.cli.local_model import LocalModel

    engine_config = _engine_config(model, config, flags)
    with LocalModel(engine_config) as local:
        _converse(local.answer, _system(system), params, engine_config.model_path.name)


def _converse(answer: Answer, system: list[dict[str, str]], params: "SamplingParams", title: str) -> None:
    """Read, answer, remember, until the person leaves."""
    if sys.stdin.isatty():
        import readline  # noqa: F401  gives `input` line editing and a history

        print(f"{title}. /exit leaves, /new starts over, Ctrl-C stops an answer.", file=sys.stderr)
    messages = list(system)
    while True:
        try:
            text = input("> " if sys.stdin.isatty() else "").strip()
        except (EOFError, KeyboardInterrupt):
            return
        if text == "/exit":
            return
        if text == "/new":
            messages = list(system)
        elif text:
            try:
                said = _say(answer([*messages, _user(text)], params))
            except RequestError as error:
                print(f"{error} (/new starts over)", file=sys.stderr)
            else:
                messages += [_user(text), {"role": "assistant", "content": said}]


def _say(pieces: Iterator[str]) -> str:
    """Print an answer as it comes; Ctrl-C ends it. Returns what was said."""
    said: list[str] = []
    generator: Generator[str, None, None] = (piece for piece in pieces)
    with closing(generator):
        try:
            for piece in generator:
                said.append(piece)
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            print(" [stopped]", end="", file=sys.stderr)
    print(flush=True)
    return "".join(said)


def _engine_config(model: str | None, config: Any, flags: dict[str, Any]) -> EngineConfig:
    named = {"model": model} if model else {}
    return with_default_model(resolve.serve_config, {**flags, **named}, config).engine


def _params(temperature: float | None, max_tokens: int | None, seed: int | None) -> "SamplingParams":
    from freehold.text.params import SamplingParams

    params = SamplingParams(max_tokens=max_tokens, seed=seed)
    return params if temperature is None else msgspec.structs.replace(params, temperature=temperature)


def _system(text: str | None) -> list[dict[str, str]]:
    return [] if text is None else [{"role": "system", "content": text}]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
