"""``freehold run`` and ``freehold chat``."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from freehold import resolve
from freehold.cli.options import ConfigOption, ModelArgument, with_settings
from freehold.cli.pulling import with_default_model
from freehold.errors import RequestError

if TYPE_CHECKING:
    from freehold.llm import LLM
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
    text = sys.stdin.read() if prompt == "-" else prompt
    params = _params(temperature, max_tokens, seed)
    with _load({**flags, "model": model}, config) as llm:
        _say(piece.text for piece in llm.stream(text if raw else [*_system(system), _user(text)], params))


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
    with _load({**flags, **({"model": model} if model else {})}, config) as llm:

        def answer(messages: Sequence[dict[str, str]], params: "SamplingParams") -> Iterator[str]:
            return (piece.text for piece in llm.stream(messages, params))

        _converse(answer, _system(system), params, llm.info.model_family)


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
    try:
        for piece in pieces:
            said.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="", file=sys.stderr)
    print(flush=True)
    return "".join(said)


def _load(flags: dict[str, Any], config: Path | None) -> "LLM":
    """The model in this process, fetched first if it is the default one and missing."""
    from freehold.llm import LLM

    def load(flags: Mapping[str, Any], config: Path | None) -> LLM:
        model = resolve.lookup("model", flags, config).value
        return LLM(config=config, **{**flags, "model": model})

    return with_default_model(load, flags, config)


def _params(temperature: float | None, max_tokens: int | None, seed: int | None) -> "SamplingParams":
    from freehold.text.params import SamplingParams

    params = SamplingParams(max_tokens=max_tokens, seed=seed)
    return params if temperature is None else msgspec.structs.replace(params, temperature=temperature)


def _system(text: str | None) -> list[dict[str, str]]:
    return [] if text is None else [{"role": "system", "content": text}]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
