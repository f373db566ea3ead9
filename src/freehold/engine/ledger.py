"""The ledger: what came in and how it ended. Nothing accepted is lost."""

from dataclasses import dataclass

from freehold.kv.check import InvariantError
from freehold.protocol import FinishReason


@dataclass(slots=True)
class Ledger:
    """Counts of requests since start-up.

    Attributes:
        received: all that were submitted; each was refused or accepted.
        accepted: each ends as finished (``stop`` or ``length``), cancelled or failed.
    """

    received: int = 0
    refused: int = 0
    accepted: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0

    def count_end(self, reason: FinishReason) -> None:
        """An accepted request ended."""
        if reason == "cancelled":
            self.cancelled += 1
        elif reason == "failed":
            self.failed += 1
        else:
            self.finished += 1

    def check(self, num_live: int) -> None:
        """Compare the counts with the number of accepted requests that have not ended.

        Raises:
            InvariantError: a request was lost or counted twice.
        """
        ended = self.finished + self.cancelled + self.failed
        if self.received != self.refused + self.accepted or self.accepted != ended + num_live:
            raise InvariantError(f"the ledger doesn't balance with {num_live} live requests: {self}")
