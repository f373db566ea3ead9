"""API keys: what one may do, and how its secret is made and recognized.

A secret is 256 random bits, so its SHA-256 is all that has to be kept: there is no dictionary to try, and a slow
password hash would only make each request slower.
"""

import hashlib
import hmac
import secrets
from typing import NewType

import msgspec

from freehold.config import RecordMode

KeyId = NewType("KeyId", str)

ANYONE = KeyId("")
"""Stands for whoever asks while no key exists."""

ADMIN_ENDPOINTS = ("metrics", "debug")
"""What tells about everybody's requests: only for keys that name it, or are of an administrator."""

ENDPOINTS = ("chat", "completions", "messages", "tokenize", "files", "batches", *ADMIN_ENDPOINTS)
"""Groups of paths that a key may be restricted to. `freehold.serve.entrance.gate` knows the paths."""

_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH = 8


class KeyLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key may use; None is any amount. Tokens are those of prompts and answers. Days and months are UTC's."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None


class Scope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key may ask for.

    Attributes:
        models: names of models; None is all.
        endpoints: of `ENDPOINTS`; None is all but `ADMIN_ENDPOINTS`.
        is_admin: every endpoint, whatever `endpoints` says.
    """

    models: tuple[str, ...] | None = None
    endpoints: tuple[str, ...] | None = None
    is_admin: bool = False

    def allows_model(self, name: str) -> bool:
        return self.models is None or name in self.models

    def allows_endpoint(self, endpoint: str) -> bool:
        """Whether one of `ENDPOINTS` may be used. What is none of them is an administrator's."""
        if self.is_admin:
            return True
        if self.endpoints is None:
            return endpoint in ENDPOINTS and endpoint not in ADMIN_ENDPOINTS
        return endpoint in self.endpoints


EVERYTHING = Scope(is_admin=True)


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key, without its secret.

    Attributes:
        key_id: public; a part of the secret, and what logs, metrics and the ledger call it.
        name: for people.
        digest: SHA-256 of the secret.
        created_s, expires_s, revoked_s: Unix seconds; None is never.
        record: what the flight recorder keeps of the key's requests; None: as the server was told.
    """

    key_id: KeyId
    name: str
    digest: bytes
    scope: Scope = Scope()
    limits: KeyLimits = KeyLimits()
    created_s: float = 0.0
    expires_s: float | None = None
    revoked_s: float | None = None
    record: RecordMode | None = None

    def state(self, now_s: float) -> str:
        """``active``, ``expired`` or ``revoked``."""
        if self.revoked_s is not None:
            return "revoked"
        return "expired" if self.expires_s is not None and self.expires_s <= now_s else "active"


def new_id() -> KeyId:
    return KeyId("".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH)))


def new_secret(key_id: KeyId) -> str:
    """256 random bits behind the key's id, so that one who finds a secret can tell which key to revoke."""
    return f"fh-{key_id}-{secrets.token_urlsafe(32)}"


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def given_key(position: int, secret: str) -> Key:
    """A key that the operator brought along, with ``--api-key``: for everything, without limits.

    Its id is its position in the list, as anything made from the secret would help to guess a short one.
    """
    name = f"api-key-{position}"
    return Key(key_id=KeyId(name), name=name, digest=digest(secret), scope=EVERYTHING)


def id_in(secret: str) -> str:
    """The id in a secret that `new_secret` made; empty if it is none."""
    prefix, _, rest = secret.partition("-")
    key_id, _, _ = rest.partition("-")
    return key_id if prefix == "fh" else ""


def matches(key: Key, presented: bytes) -> bool:
    """Whether a digest is that of the key's secret, in the same time whatever they are."""
    return hmac.compare_digest(key.digest, presented)
