"""Which running request another one can reuse something of, now or soon, and who waits for whom."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from freehold.kv.nodes import Node, num_common
from freehold.kv.prefix import Match
from freehold.sched.request import Request, Status


@dataclass(frozen=True, slots=True)
class Reusable:
    """What a request needn't compute.

    Attributes:
        nodes: blocks that are used as they are.
        source_id: a block whose first `num_copied` ids come next; of use after copying.
    """

    nodes: list[Node]
    source_id: int | None
    num_copied: int

    @property
    def tip(self) -> Node | None:
        """The node of the last block that is used as it is."""
        return self.nodes[-1] if self.nodes else None


def reusable(request: Request, match: Match, running: Iterable[Request], block_size: int) -> Reusable:
    """What the tree has, and what running requests have computed of the block after that.

    That block isn't in the tree yet, as its owner still writes to it; but only behind what steps that were applied have
    computed, and copies run after all submitted steps.
    """
    pos = len(match.nodes) * block_size
    source_id = match.source.block_id if match.source is not None else None
    num_copied = match.num_copied
    for other in _beside(request, match.tip, running):
        end = min(other.num_computed, request.num_reusable, pos + block_size)
        num_here = num_common(other.ids[pos:end], request.ids[pos:end]) if end > pos + num_copied else 0
        if num_here > num_copied:
            source_id, num_copied = other.table[len(match.nodes)], num_here
    return Reusable(match.nodes, source_id, num_copied)


def find_leader(request: Request, found: Reusable, running: Iterable[Request], block_size: int) -> bool:
    """Whether a running request is computing what this one could reuse: whole blocks, or all that it could reuse at
    all. It then becomes its leader. It must be before this one in order: who is more urgent doesn't wait for who is
    less."""
    if request.num_unscored:
        return False
    pos = len(found.nodes) * block_size
    for other in _beside(request, found.tip, running):
        if other.rank > request.rank:
            return False  # and so are all after it
        end = min(other.num_prompt, request.num_reusable)
        num_led = _end_of_common(other.ids, request.ids, pos, end, block_size)
        if num_led < request.num_reusable:
            num_led -= num_led % block_size
        if num_led > max(pos + found.num_copied, other.num_computed):
            request.leader, request.num_led = other, num_led
            return True
    return False


def is_led(request: Request) -> bool:
    """Whether the request's leader still computes what it would have to compute itself."""
    leader = request.leader
    if leader is None:
        return False
    return leader.num_computed < request.num_led if leader.status is Status.RUNNING else leader.num_in_flight > 0


def follows(request: Request) -> bool:
    """Whether the request should wait for its leader. Once that one has left and its last step was applied, the first
    of those that followed takes over."""
    if is_led(request):
        return True
    request.leader = None
    return False


def _beside(request: Request, tip: Node | None, running: Iterable[Request]) -> Iterator[Request]:
    """Running requests that go on from the same place in the same tree."""
    for other in running:
        if other.tip is tip and other.namespace == request.namespace is not None and other is not request:
            yield other


def _end_of_common(a: Sequence[int], b: Sequence[int], pos: int, end: int, stride: int) -> int:
    """Where two sequences of ids, equal before `pos`, differ for the first time; `end` if not before. Compares runs."""
    while pos < end and a[pos : min(pos + stride, end)] == b[pos : min(pos + stride, end)]:
        pos += stride
    return min(pos + num_common(a[pos : pos + stride], b[pos : pos + stride]), end) if pos < end else max(end, 0)
