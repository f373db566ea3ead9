"""Hashes of prompts, block by block: they show which prompts begin alike, and nothing else."""

import hashlib
from array import array
from collections.abc import Sequence

BLOCK_TOKENS = 512
"""As in Mooncake's traces."""

_HASH_BYTES = 8


class PromptHasher:
    """Hashes under a secret that is never written: nobody can find out by trying whether a prompt was a certain one.

    Args:
        secret: 16 to 64 random bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def blocks(self, namespace: str, token_ids: Sequence[int]) -> tuple[int, ...]:
        """One number for each 512 ids and one for the rest. Each depends on all ids up to there and on the namespace:
        two are equal if both prompts could share what is cached up to there."""
        chain = hashlib.blake2b(namespace.encode(), digest_size=_HASH_BYTES, key=self._secret).digest()
        hashes = []
        for start in range(0, len(token_ids), BLOCK_TOKENS):
            block = array("q", token_ids[start : start + BLOCK_TOKENS]).tobytes()
            chain = hashlib.blake2b(chain + block, digest_size=_HASH_BYTES, key=self._secret).digest()
            hashes.append(int.from_bytes(chain, "little"))
        return tuple(hashes)

    def name(self, given: str) -> str:
        """Stands for a name that a client made up; equal for equal ones. Empty stays empty."""
        if not given:
            return ""
        return hashlib.blake2b(given.encode(), digest_size=_HASH_BYTES, key=self._secret).hexdigest()
