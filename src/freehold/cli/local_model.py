"""A model in this process, for the commands that talk to one without a server."""

import queue
import secrets
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.errors import EngineError
from freehold.files.model import open_model
from freehold.files.vocabulary import load_text
from freehold.protocol import Event, Finish, Generate, RequestId
from freehold.text.params import SamplingParams, context_room
from freehold.text.stream import TextStream

Chat = Sequence[dict[str, str]]


class LocalModel:
    """Engine and vocabulary of one model."""

    def __init__(self, config: EngineConfig) -> None:
        """Load it.

        Raises:
            UserError: it can't be read or run, or it doesn't fit.
        """
        with open_model(config.model_path, cache_dir=config.cache_dir) as files:
            self._text = load_text(files)
        if self._text.template is not None:
            self._text.template.start()
        self._engine = Engine.start(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.shutdown()
        if self._text.template is not None:
            self._text.template.close()

    def answer(self, chat: Chat, params: SamplingParams) -> Iterator[str]:
        """Answer a chat. A model without chat template continues the last message's text.

        Closing the iterator ends the answer.
        """
        if self._text.template is None:
            return self.complete(chat[-1]["content"], params)
        return self._generate(self._text.template.render(chat).encode(self._text.tokenizer), params)

    def complete(self, prompt: str, params: SamplingParams) -> Iterator[str]:
        """Continue a text. Closing the iterator ends the answer."""
        return self._generate(self._text.tokenizer.encode(prompt), params)

    def _generate(self, prompt_ids: list[int], params: SamplingParams) -> Iterator[str]:
        tokenizer, info = self._text.tokenizer, self._engine.info
        params.validate(vocab_size=tokenizer.vocab_size)
        room = context_room(len(prompt_ids), info.max_model_len, param="the prompt")
        sampling = params.to_engine(eos_ids=tokenizer.eos_ids, choice=0, fresh_seed=secrets.randbits(53), room=room)
        request_id = RequestId(uuid.uuid4().hex)
        text = TextStream(tokenizer, prompt_ids, params.stop_strings, sampling.stop_ids)
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._engine.submit(
            Generate(request_id=request_id, prompt_ids=tuple(prompt_ids), sampling=sampling), events.put
        )
        try:
            while not isinstance(event := events.get(), Finish):
                yield text.push(event).text
                if text.stopped:
                    self._engine.abort(request_id)
        finally:
            self._engine.abort(request_id)
        if event.reason == "failed":
            raise EngineError(event.message or "the engine failed", code=event.code or "engine_failed")
        yield text.finish(event).tail
