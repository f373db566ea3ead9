"""``freehold run`` and ``freehold chat``."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freehold import resolve
from freehold.cli.batch import answer_all, open_prompts
from freehold.cli.completion import models
from freehold.cli.conversation import check_text, converse, read_input, say, user
from freehold.cli.options import PATH, config_option, model_argument, one_model, with_settings
from freehold.cli.pulling import with_default_model
from freehold.errors import ConfigError, EngineError
from freehold.settings import SETTINGS_BY_NAME

if TYPE_CHECKING:
    from freehold.llm import LLM
    from freehold.text.params import SamplingParams

EXIT_FAILED = 1
EXIT_USER_ERROR = 2
TEMPERATURE = 0.7
TOP_P = 0.9
"""Less than the API's 1.0, which lets small models ramble."""

_temperature_option = click.option(
    "--temperature", type=float, default=TEMPERATURE, help="0 takes the likeliest token each time."
)
_top_p_option = click.option(
    "--top-p", type=float, default=TOP_P, help="Choose among the likeliest tokens that have this share together."
)
_max_tokens_option = click.option(
    "--max-tokens", type=int, help="Tokens of an answer. Default: what the context holds."
)
_seed_option = click.option("--seed", type=int, help="Makes answers repeatable.")
_system_option = click.option("--system", help="A system message before the chat.")


@click.command()
@click.argument("model", shell_complete=models, help="Store name, path, or Hugging Face id.")
@click.argument("prompt", required=False, help="What to say; - reads it from standard input.")
@click.option(
    "--prompts",
    type=PATH,
    help='A file with a prompt a line instead; in a .jsonl file a string, {"prompt": …} or {"messages": […]}.',
)
@click.option(
    "--output", type=PATH, help="Where their answers go, as JSON lines. Run again, it goes on with what is missing."
)
@_temperature_option
@_top_p_option
@_max_tokens_option
@_seed_option
@_system_option
@click.option("--raw", is_flag=True, help="Continue the text as it is, without chat template.")
@config_option
@with_settings(serve=False, model=False)
def run(
    model: str,
    prompt: str | None,
    prompts: Path | None,
    output: Path | None,
    temperature: float,
    top_p: float,
    max_tokens: int | None,
    seed: int | None,
    system: str | None,
    raw: bool,
    config: Path | None,
    flags: dict[str, Any],
) -> None:
    """Answer one prompt, or a file of prompts, and stop."""
    if (prompt is None) == (prompts is None) or (prompts is None) != (output is None):
        raise ConfigError("give PROMPT, or --prompts FILE and --output FILE")
    if raw and system is not None:
        raise ConfigError("--system goes into the chat template, which --raw leaves out; drop one of them")
    params = _params(temperature, top_p, max_tokens, seed)
    if prompts is not None and output is not None:
        lines = open_prompts(prompts, _system(system), raw=raw)
        with _load({**flags, "model": model}, config) as llm:
            if not answer_all(llm, lines, params, output):
                sys.exit(EXIT_FAILED)
        return
    text = read_input() if prompt == "-" else check_text(prompt or "", "PROMPT")
    if not text:
        raise ConfigError("PROMPT is empty; say something, or - to read it from standard input")
    with _load({**flags, "model": model}, config) as llm:
        say(_answer(llm, text if raw else [*_system(system), user(text)], params))


@click.command()
@model_argument
@click.option("--url", help="Talk to a running server instead of loading the model here.")
@_temperature_option
@_top_p_option
@_max_tokens_option
@_seed_option
@_system_option
@config_option
@with_settings(serve=False)
def chat(
    model: str | None,
    url: str | None,
    temperature: float,
    top_p: float,
    max_tokens: int | None,
    seed: int | None,
    system: str | None,
    config: Path | None,
    flags: dict[str, Any],
) -> None:
    """Talk with a model. Ctrl-C stops an answer; /exit or Ctrl-D leaves; /new starts over; /help lists all."""
    params = _params(temperature, top_p, max_tokens, seed)
    if url is not None:
        from freehold.cli.remote_model import RemoteModel

        if strangers := [SETTINGS_BY_NAME[name].flag for name in flags if name != "model"] + ["--config"] * bool(
            config
        ):
            raise ConfigError(f"{', '.join(strangers)} can't go with --url: the server that runs there has its own")
        remote = RemoteModel(url, one_model(model, flags), resolve.client_key())
        _leave(converse(remote.answer, _system(system), params, f"{remote.model} at {url}"))
        return
    flags = {**flags, "model": one_model(model, flags)}
    with _load(flags, config) as llm:

        def answer(messages: Sequence[dict[str, str]], params: "SamplingParams") -> Iterator[str]:
            return _answer(llm, messages, params)

        title = f"{resolve.lookup('model', flags, config).value} ({llm.info.model_family})"
        _leave(converse(answer, _system(system), params, title))


def _leave(succeeded: bool) -> None:
    """Who pipes a conversation in can't see that answers failed; the exit code says so."""
    if not succeeded and not sys.stdin.isatty():
        sys.exit(EXIT_USER_ERROR)


def _answer(llm: "LLM", prompt: str | Sequence[dict[str, str]], params: "SamplingParams") -> Iterator[str]:
    """The pieces of one answer.

    Raises:
        EngineError: it broke off.
    """
    for piece in llm.stream(prompt, params):
        yield piece.text
        if piece.completion is not None and piece.completion.error:
            raise EngineError(piece.completion.error, code="engine_failed")


def _load(flags: dict[str, Any], config: Path | None) -> "LLM":
    """The model in this process, fetched first if it is the default one and missing."""
    from freehold.llm import LLM

    def load(flags: Mapping[str, Any], config: Path | None) -> LLM:
        model = resolve.lookup("model", flags, config).value
        return LLM(config=config, **{**flags, "model": model})

    return with_default_model(load, flags, config)


def _params(temperature: float, top_p: float, max_tokens: int | None, seed: int | None) -> "SamplingParams":
    from freehold.text.params import SamplingParams

    if max_tokens == 0:
        raise ConfigError("--max-tokens is 0; an answer has at least 1")
    return SamplingParams(temperature=temperature, top_p=top_p, max_tokens=max_tokens, seed=seed)


def _system(text: str | None) -> list[dict[str, str]]:
    return [] if text is None else [{"role": "system", "content": check_text(text, "--system")}]
