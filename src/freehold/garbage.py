"""How often Python looks for garbage in cycles.

It does so whenever some hundreds of objects more were made than freed, and looks at all young ones: with many answers
that grow, in every few steps. What serves makes next to no cycles, and what start-up made stays.
"""

import gc

_NUM_YOUNG = 50_000
"""New objects between two looks: some MB. Python's own number is 700."""


def spare_collections() -> None:
    """Look seldom from now on, and never again at what is there. For a process that has started up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NUM_YOUNG, *gc.get_threshold()[1:])
