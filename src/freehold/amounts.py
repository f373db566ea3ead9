"""Amounts in words, for logs and messages: ``1 request``, ``3 requests``."""


def amount(number: int, one: str, several: str = "") -> str:
    """A number and what it counts.

    Args:
        one: of a single one.
        several: of any other number; empty: the same with an ``s``.
    """
    return f"{number} {one if number == 1 else several or one + 's'}"
