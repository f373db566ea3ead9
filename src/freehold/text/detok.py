"""Incremental decoding: one token in, the text that is certain now out.

Tokens are bytes; a character may be spread over several of them in any way. A byte-level state machine (UTF-8's, kept
by the codec) holds what is incomplete, so each token costs only its own bytes: nothing is decoded twice.
"""

import codecs
from collections.abc import Callable, Sequence

_LONGEST_CHARACTER = 4  # bytes of UTF-8


class Detokenizer:
    """Decodes what follows a prompt. Not thread-safe; one per answer.

    The deltas are valid text each, and joined they are the text of prompt and answer decoded at once, less the prompt's
    whole characters. If the prompt ends within a character, the first delta completes it.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], prompt_ids: Sequence[int], *, strips_space: bool) -> None:
        """
        Arguments:
            token_bytes: bytes of an id, none for control tokens.
            strips_space: the first space of a text stands for nothing (SentencePiece's dummy prefix).
        """
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._has_output = False
        tail = b""
        for token_id in reversed(prompt_ids):
            tail = token_bytes(token_id) + tail
            if len(tail) >= _LONGEST_CHARACTER:
                break
        # UTF-8 finds its step again within a character, so the last bytes tell what is incomplete.
        self._decoder.decode(tail)
        self._strips_space = strips_space and not tail

    def push(self, token_id: int) -> str:
        """Text that became certain with this token; may be empty."""
        raw = self._token_bytes(token_id)
        if not raw:
            return ""
        if self._strips_space:
            self._strips_space = False
            raw = raw.removeprefix(b" ")
        self._has_output = True
        return self._decoder.decode(raw)

    def finish(self) -> str:
        """The rest: U+FFFD if the answer ends within a character, else empty."""
        return self._decoder.decode(b"", final=True) if self._has_output else ""
