"""What following a grammar may take: the same in the process that checks grammars and in the engine."""

import llguidance


def parser_limits(*, is_ambiguous: bool) -> llguidance.LLParserLimits:
    """For compiling one grammar, and for each token that is followed.

    Rows and items bound the time that a mask takes, which in an ambiguous grammar grows with their square; the lexer's
    states bound the memory of one request, at some 2 kB each.
    """
    return llguidance.LLParserLimits(
        max_items_in_row=500 if is_ambiguous else 1200,
        step_max_items=2000 if is_ambiguous else 6000,
        max_lexer_states=25_000,
        verbose_errors=False,
    )
