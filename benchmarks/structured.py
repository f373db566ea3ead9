"""What grammars cost: tokens a second with and without, one and many answers at once.

    python benchmarks/structured.py smollm2 --concurrency 1,32 --pairs 5

Every answer has the same number of tokens: free ones are told to ignore their end, and the grammars' texts are longer
than that. The two kinds run in turns (`pairs`).
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

from pairs import in_turns, ratios

from freehold.grammar.constraint import Constraint, JsonSchema, Regex
from freehold.llm import LLM
from freehold.text.params import SamplingParams

_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 60},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4},
        "address": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
CONSTRAINTS: dict[str, Constraint] = {
    "JSON schema": JsonSchema({"type": "array", "items": _PERSON, "minItems": 1000}),
    "any JSON": JsonSchema({"type": "array", "minItems": 1000}),
    "regex": Regex("([A-Z][a-z]{2,9} ){500}"),
}


def measure(llm: LLM, num_answers: int, params: SamplingParams) -> Callable[[int], float]:
    """A run of so many answers at once, in tokens a second."""

    def run(turn: int) -> float:
        prompts = [f"List people as JSON, number {index} of run {turn}." for index in range(num_answers)]
        begun_s = time.monotonic()
        completions = llm.generate(prompts, params)
        seconds = time.monotonic() - begun_s
        assert {completion.finish_reason for completion in completions} == {"length"}
        return sum(len(completion.token_ids) for completion in completions) / seconds

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--concurrency", default="1,32")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    options = parser.parse_args()
    with LLM(options.model) as llm:
        for num_answers in map(int, options.concurrency.split(",")):
            for name, constraint in CONSTRAINTS.items():
                shared = {"temperature": 1.0, "seed": 1, "max_tokens": options.tokens}
                kinds = {
                    "free": SamplingParams(**shared, ignore_eos=True),
                    "held": SamplingParams(**shared, structured_outputs=constraint),
                }
                runs = {kind: measure(llm, num_answers, params) for kind, params in kinds.items()}
                found = in_turns(runs, options.pairs)
                shares = ratios(found["held"], found["free"])
                print(
                    f"{num_answers:3} at once, {name:12} free {median(found['free']):7.1f} tok/s, "
                    f"held {median(found['held']):7.1f} tok/s, ratio {median(shares):.3f} "
                    f"({min(shares):.3f}-{max(shares):.3f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
