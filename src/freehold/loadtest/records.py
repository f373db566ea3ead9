"""What is known of one request after it ended."""

import msgspec

from freehold.loadtest.client.answer import TokenSource


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Times are seconds from the beginning of the measurement that it belongs to.

    Attributes:
        conversation: its index within the measurement.
        turn: its index within the conversation.
        intended_s: when the load wanted it to start.
        taken_up_s: when the client noticed: later than intended if the client itself was late.
        started_s: when its first byte was sent: later than taken up if it waited for a slot of ``--max-concurrency``,
            or for a new connection. For failed ones, when the client began with it.
        first_s: when its first token came, of any kind; None if none did, or the answer wasn't streamed.
        first_output_s: when the first token came that isn't reasoning.
        ended_s: when the last token or the reason to finish came; for failed ones, when they failed.
        gaps_s: between chunks with tokens.
        num_input, num_output, num_cached, num_reasoning: tokens as the server counts them; None if nobody does.
        num_refused_counts: of these, that the server told as what can't be true.
        source: where `num_output` is from.
        num_ids: token ids that came; None if the server sends none.
        asked_input, asked_output: tokens that the workload meant.
        lacks_done: the stream ended without ``[DONE]``, after a reason to finish.
        error: what went wrong, under its stable name; None if it succeeded.
        message: of the error.
        status: of the answer that refused it; None if it wasn't refused.
    """

    request_id: str
    conversation: int
    turn: int
    intended_s: float
    taken_up_s: float
    started_s: float
    first_s: float | None = None
    first_output_s: float | None = None
    ended_s: float
    gaps_s: list[float] = []
    num_input: int | None = None
    num_output: int | None = None
    num_cached: int | None = None
    num_reasoning: int | None = None
    num_refused_counts: int = 0
    source: TokenSource = "unknown"
    num_ids: int | None = None
    asked_input: int | None = None
    asked_output: int | None = None
    finish_reason: str | None = None
    lacks_done: bool = False
    error: str | None = None
    message: str = ""
    status: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.error is None

    @property
    def ttft_s(self) -> float | None:
        """From send to the first token."""
        return None if self.first_s is None else self.first_s - self.started_s

    @property
    def ttfot_s(self) -> float | None:
        """From send to the first token that isn't reasoning."""
        return None if self.first_output_s is None else self.first_output_s - self.started_s

    @property
    def e2e_s(self) -> float:
        """From send to the end."""
        return self.ended_s - self.started_s

    @property
    def tpot_s(self) -> float | None:
        """Time per token after the first; None for answers of one token, and where nobody counts."""
        if self.first_s is None or self.num_output is None or self.num_output < 2:
            return None
        return (self.ended_s - self.first_s) / (self.num_output - 1)

    @property
    def queue_s(self) -> float:
        """From the intended start to send."""
        return self.started_s - self.intended_s
