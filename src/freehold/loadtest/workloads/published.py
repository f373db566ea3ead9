"""Lengths of real work, as publications give them.

Parameters of the first three are maximum likelihood fits to the published traces, of log-normal and gamma
distributions the closer one. None is a close fit (``misfit``): real lengths have peaks that no such curve has. What is
right are the middle and the spread. The last one has the published median and 90th percentile.
"""

from dataclasses import dataclass

from freehold.loadtest.workloads.lengths import Gamma, Lengths, LogNormal


@dataclass(frozen=True, slots=True)
class Published:
    """Lengths of one kind of work.

    Attributes:
        source: where they were published.
        input: tokens that a request adds to what was said before it.
        output: tokens of an answer.
        steps: requests of one conversation; None: each stands alone.
        misfit: largest distance between the fit's distribution function and the trace's, for input and output
            (Kolmogorov-Smirnov), or how the parameters came about.
    """

    source: str
    input: Lengths
    output: Lengths
    misfit: str
    steps: Lengths | None = None


_AZURE = "Azure LLM inference trace 2023 (Patel et al., Splitwise, ISCA 2024), {}, {} requests"

PUBLISHED = {
    "chat": Published(
        source=_AZURE.format("conversation", "19,366"),
        input=Gamma(shape=1.329, mean=1155),
        output=LogNormal(median=151, sigma=0.859),
        misfit="0.14 and 0.18",
    ),
    "code": Published(
        source=_AZURE.format("code", "8,819"),
        input=Gamma(shape=0.921, mean=2048),
        output=LogNormal(median=16, sigma=0.847),
        misfit="0.04 and 0.13",
    ),
    "long-chat": Published(
        source="Mooncake conversation trace (Qin et al., FAST 2025), 12,031 requests",
        input=LogNormal(median=6227, sigma=1.199),
        output=Gamma(shape=1.128, mean=343),
        misfit="0.07 and 0.16",
    ),
    "agent": Published(
        source="TraceLab coding agents (arXiv 2606.30560), Claude, 350,000 steps: fresh input and output of a step",
        input=LogNormal(median=857, sigma=1.428),
        output=LogNormal(median=252, sigma=1.476),
        steps=Gamma(shape=1.0, mean=8.7),
        misfit="made of median and 90th percentile; steps of a user's request from their mean",
    ),
}
