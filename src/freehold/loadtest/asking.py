"""One turn asked and answered, as a record."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from freehold.loadtest.client.answer import Answer
from freehold.loadtest.client.failures import FailedRequestError
from freehold.loadtest.client.http_client import HttpClient
from freehold.loadtest.dialogue import BodyOptions, Dialogue
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.workloads.base import Conversation, Turn

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands in the load.

    Attributes:
        intended_s, taken_up_s: as in `RequestRecord`.
    """

    request_id: str
    conversation: int
    turn: int
    intended_s: float
    taken_up_s: float


class Asker:
    """Asks one server.

    Attributes:
        origin_s: what records count their seconds from, on the clock of `time.perf_counter`.
    """

    def __init__(self, http: HttpClient, path: str, options: BodyOptions, count: CountTokens | None = None) -> None:
        """
        Args:
            path: of the endpoint, such as ``/v1/completions``.
            count: tokens of a text, for servers that tell neither usage nor ids.
        """
        self.origin_s = perf_counter()
        self._http = http
        self._path = path
        self._options = options
        self._count = count

    def dialogue(self, conversation: Conversation) -> Dialogue:
        """A conversation that hasn't begun."""
        return Dialogue(conversation, self._options)

    async def ask(self, dialogue: Dialogue, turn: Turn, place: Place) -> RequestRecord:
        """Ask a turn and wait for the end of its answer, which becomes a part of the dialogue."""
        answer = Answer(is_stream=self._options.is_stream, keeps_text=dialogue.keeps_text or self._count is not None)
        began_s = perf_counter()
        try:
            body = dialogue.body(turn)
            response = await self._http.post(self._path, body, place.request_id, answer.take)
            assert response.ended_s is not None
            answer.finish(response.ended_s)
        except FailedRequestError as error:
            return self._failed(place, turn, began_s, error)
        dialogue.keep(answer)
        return self._record(place, turn, response.sent_s, answer)

    def _failed(self, place: Place, turn: Turn, began_s: float, error: FailedRequestError) -> RequestRecord:
        return RequestRecord(
            request_id=place.request_id,
            conversation=place.conversation,
            turn=place.turn,
            intended_s=place.intended_s,
            taken_up_s=place.taken_up_s,
            started_s=began_s - self.origin_s,
            ended_s=perf_counter() - self.origin_s,
            asked_input=turn.input_len,
            asked_output=turn.output_len,
            error=error.name,
            message=str(error),
            status=error.status,
        )

    def _record(self, place: Place, turn: Turn, sent_s: float, answer: Answer) -> RequestRecord:
        num_output, source = answer.num_tokens(self._count)
        counts = answer.counts
        arrivals = answer.arrivals_s
        if not arrivals and answer.is_stream and num_output and answer.ended_s is not None:
            arrivals = [answer.ended_s]  # its only token has no text: it came with the reason to finish
        assert answer.ended_s is not None
        return RequestRecord(
            request_id=place.request_id,
            conversation=place.conversation,
            turn=place.turn,
            intended_s=place.intended_s,
            taken_up_s=place.taken_up_s,
            started_s=sent_s - self.origin_s,
            first_s=arrivals[0] - self.origin_s if arrivals else None,
            first_output_s=None if answer.first_output_s is None else answer.first_output_s - self.origin_s,
            ended_s=answer.ended_s - self.origin_s,
            gaps_s=[later - earlier for earlier, later in pairwise(arrivals)],
            num_input=counts.num_input,
            num_output=num_output,
            num_cached=counts.num_cached,
            num_reasoning=counts.num_reasoning,
            num_refused_counts=counts.num_refused,
            source=source,
            num_ids=len(answer.token_ids) or None,
            asked_input=turn.input_len,
            asked_output=turn.output_len,
            finish_reason=answer.finish_reason,
            lacks_done=answer.lacks_done,
        )
