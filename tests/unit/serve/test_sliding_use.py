"""What keys used lately: sums of a window that slides, whoever uses how much."""

import random
from collections import deque

from freehold.access.keys import KeyId
from freehold.access.usage import Usage
from freehold.serve.live.uses import NUM_SLOTS, SlidingUse


def test_a_window_sums_its_seconds_alone() -> None:
    """To a slot's length; and keys that have used nothing in it are forgotten."""
    numbers = random.Random(3)
    window_s = 60
    sliding = SlidingUse(window_s)
    seconds: deque[list[int]] = deque(maxlen=window_s)
    for second in range(300):
        seconds.append([numbers.randrange(1, 50) for _ in range(numbers.randrange(3))])
        for num_tokens in seconds[-1]:
            sliding.add(KeyId("a"), Usage(requests=1, prompt_tokens=num_tokens, output_tokens=2))
        if second == 0:
            sliding.add(KeyId("once"), Usage(requests=1))
        sliding.pass_second()
        found = sliding.total[KeyId("a"), "prompt_tokens"]
        slot_s = window_s // NUM_SLOTS
        inside = [sum(map(sum, list(seconds)[-span:])) for span in range(window_s - slot_s, window_s + 1)]
        assert found in inside
    assert sliding.keys == {KeyId("a")}
    for _ in range(window_s):
        sliding.pass_second()
    assert not sliding.total


def test_requests_without_tokens_count_too() -> None:
    sliding = SlidingUse(3600)
    sliding.add(KeyId("a"), Usage(requests=1))
    assert sliding.total[KeyId("a"), "requests"] == 1
    assert sliding.total[KeyId("a"), "output_tokens"] == 0
    assert sliding.total[KeyId("b"), "requests"] == 0
    assert sliding.keys == {KeyId("a")}
