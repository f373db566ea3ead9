"""On whose behalf a request is served, and how urgently. The gate puts it into the request's scope, or whoever makes a
request within the server: HTTP can't set it."""

from dataclasses import dataclass

from starlette.types import Scope

from freehold.access.keys import ANYONE, EVERYTHING, KeyId
from freehold.access.keys import Scope as KeyScope
from freehold.protocol import ServiceClass

SCOPE_KEY = "freehold.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        key_id: of the key that the request came with; empty where there are no keys. It holds no space.
        scope: what the key may ask for.
        service: the class that the request is served in, whatever its body says; None leaves it to the body.
    """

    key_id: KeyId = ANYONE
    scope: KeyScope = EVERYTHING
    service: ServiceClass | None = None

    def cache_namespace(self, salt: str) -> str:
        """The part of the prefix cache that requests with this key and salt share: no other pair has it."""
        return f"{self.key_id} {salt}" if self.key_id or salt else ""


def caller_of(scope: Scope) -> Caller:
    """Whose request it is."""
    caller: Caller = scope.get(SCOPE_KEY, Caller())
    return caller
