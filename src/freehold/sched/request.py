"""The state of one request in the scheduler. Only `freehold.sched.scheduler` changes it."""

from collections.abc import Sequence
from enum import Enum, auto

from freehold.backends.base import FedBy, RowSampling, StepId
from freehold.kv.blocks import BlockTable
from freehold.kv.nodes import Node
from freehold.protocol import Generate
from freehold.sched.context import ContextIds
from freehold.sched.policy import Rank


class Status(Enum):
    """Where a request stands. Each is in exactly one of these states."""

    WAITING = auto()  # new or preempted; gets blocks when it starts
    RUNNING = auto()  # holds blocks; may get a row in every step
    ENDED = auto()  # its `Finish` was given; steps in flight may still hold rows of it


class Request:
    """Known ids, and how far computing has come.

    Positions of one request, left to right::

        [0, num_computed)           keys and values are in the blocks
        [num_computed, num_planned) steps in flight write them
        [num_planned, num_total)    to be computed: known ids, and at the very end what a step in flight samples
        [num_total, max_total)      may still be sampled

    Attributes:
        ids: the prompt, then what was sampled.
        num_prompt: length of the prompt.
        max_total: the request ends with ``length`` when it has this many ids.
        arrival_s, started_s, first_token_s: when it came, first started, and had its first id, by the scheduler's
            clock; None before.
        num_preemptions: times that its blocks were taken.
        rank: place in the policy's order; smaller goes first.
        namespace: of the prefix tree; None if it shares with nobody.
        context: `ids` again, as int32, if sampling depends on them as such.
        num_unscored: ids at the end of the prompt whose log probabilities are still to be reported.
        num_in_flight: submitted, not yet applied steps that hold a row of this request.
        num_pending: ids that those rows will sample for certain.
        fed_by: the row that samples the newest pending id. Set if and only if `num_pending` > 0.
        tip: the tree's node of the last of the first `num_kept` blocks; None while that is 0.
        num_reached: positions that were ever computed or reused; `freehold.sched.counts` keeps it.
        num_kept: blocks of the table that the prefix tree has been offered, or came from it.
        num_shared: blocks of the table that came from the prefix tree.
        is_suspect: what it computed must not be reused.
        num_cached: prompt tokens that were reused when it first started; None before.
        num_needed: available blocks that starting would have taken when it was last tried.
        num_waits: steps since then in which it was known that there are too few.
        last_step_id: the last step that had a row of it, or 0.
        leader: a request that is computing the first `num_led` of this one's ids, so this one waits.
        is_held: it may not start yet.
        held_s: for how long that was so, in seconds; 0 while it is.
        is_drafting: a row with drafts is in flight, so how many ids it yields is open and nothing more can be planned.
    """

    __slots__ = (
        "arrival_s",
        "context",
        "fed_by",
        "first_token_s",
        "generate",
        "held_s",
        "ids",
        "is_drafting",
        "is_held",
        "is_suspect",
        "last_step_id",
        "leader",
        "max_total",
        "namespace",
        "num_cached",
        "num_computed",
        "num_in_flight",
        "num_kept",
        "num_led",
        "num_needed",
        "num_pending",
        "num_planned",
        "num_preemptions",
        "num_prompt",
        "num_reached",
        "num_shared",
        "num_unscored",
        "num_waits",
        "rank",
        "sampling",
        "started_s",
        "status",
        "table",
        "tip",
    )

    def __init__(self, generate: Generate, *, max_total: int, arrival_s: float, rank: Rank) -> None:
        sampling = generate.sampling
        self.generate = generate
        self.ids = list(generate.prompt_ids)
        self.num_prompt = len(self.ids)
        self.max_total = max_total
        self.arrival_s = arrival_s
        self.started_s: float | None = None
        self.first_token_s: float | None = None
        self.num_preemptions = 0
        self.rank = rank
        self.namespace: str | None = None
        self.sampling = _row_sampling(generate)
        self.context = ContextIds(self.ids) if self.sampling.has_penalties else None
        self.num_unscored = 0 if sampling.num_prompt_logprobs is None else self.num_prompt - 1
        self.status = Status.WAITING
        self.table = BlockTable()
        self.num_computed = 0
        self.num_planned = 0
        self.num_reached = 0
        self.num_in_flight = 0
        self.last_step_id = StepId(0)
        self.num_pending = 0
        self.fed_by: FedBy | None = None
        self.is_held = False
        self.held_s = 0.0
        self.is_drafting = False
        self.tip: Node | None = None
        self.num_kept = 0
        self.num_shared = 0
        self.is_suspect = False
        self.num_cached: int | None = None
        self.leader: Request | None = None
        self.num_led = 0
        self.num_needed = 0
        self.num_waits = 0

    @property
    def num_total(self) -> int:
        """Ids known, plus those that steps in flight sample for certain."""
        return len(self.ids) + self.num_pending

    @property
    def num_output(self) -> int:
        """Ids sampled so far."""
        return len(self.ids) - self.num_prompt

    @property
    def wants_answer(self) -> bool:
        """Something is to be sampled; otherwise the request ends when its prompt is computed."""
        return self.max_total > self.num_prompt

    @property
    def is_masked(self) -> bool:
        """Not every id may be sampled, and which ones may isn't the scheduler's affair."""
        generate = self.generate
        return generate.grammar is not None or generate.thinking is not None or bool(generate.sampling.allowed_ids)

    @property
    def num_uncomputed(self) -> int:
        """Inputs that a next step could compute: 0 if there is nothing to do until steps in flight are applied."""
        num_total = len(self.ids) + self.num_pending
        if self.is_drafting or (num_total >= self.max_total and self.wants_answer):
            return 0
        return num_total - self.num_planned

    @property
    def num_reusable(self) -> int:
        """Ids at the beginning whose keys and values suffice: all but the last one, and none from the one on whose
        logits score the prompt."""
        return (self.num_prompt - self.num_unscored if self.num_unscored else len(self.ids)) - 1

    def add_ids(self, token_ids: Sequence[int]) -> None:
        """Ids were sampled."""
        self.ids.extend(token_ids)
        if self.context is not None:
            for token_id in token_ids:
                self.context.append(token_id)


def _row_sampling(generate: Generate) -> RowSampling:
    sampling = generate.sampling
    # With a grammar, which knows where else to go on, its masks keep stop ids from coming early.
    min_tokens = 0 if generate.grammar is not None else sampling.min_tokens
    return RowSampling(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=sampling.seed,
        choice=sampling.choice,
        num_prompt_tokens=len(generate.prompt_ids),
        min_tokens=min_tokens,
        stop_ids=tuple(sorted(sampling.stop_ids)) if min_tokens else (),
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=sampling.logit_bias,
        num_logprobs=sampling.num_logprobs,
    )
