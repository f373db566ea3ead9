"""The ledger: what came in and how it ended. Nothing accepted is lost."""

from dataclasses import dataclass

from freehold.kv.check import InvariantError
from freehold.protocol import FinishReason


@dataclass(slots=True)
class Ledger:
    """Counts of requests and ids since start-up.

    Attributes:
        received: all that were submitted; each was refused or accepted.
        accepted: each ends as finished (``stop`` or ``length``), cancelled or failed.
        published_ids: ids passed on.
        ended_ids: of those, ids of requests that have ended.
    """

    received: int = 0
    refused: int = 0
    accepted: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    published_ids: int = 0
    ended_ids: int = 0

    def count_end(self, reason: FinishReason, num_ids: int) -> None:
        """An accepted request ended after so many ids."""
        self.ended_ids += num_ids
        if reason == "cancelled":
            self.cancelled += 1
        elif reason == "failed":
            self.failed += 1
        else:
            self.finished += 1

    def check(self, num_live: int, num_live_ids: int = 0) -> None:
        """Compare the counts with the accepted requests that have not ended, and the ids that these have had.

        Raises:
            InvariantError: a request or an id was lost or counted twice.
        """
        ended = self.finished + self.cancelled + self.failed
        is_balanced = (
            self.received == self.refused + self.accepted
            and self.accepted == ended + num_live
            and self.published_ids == self.ended_ids + num_live_ids
        )
        if not is_balanced:
            live = f"{num_live} live requests that have had {num_live_ids} ids"
            raise InvariantError(f"the ledger doesn't balance with {live}: {self}")
