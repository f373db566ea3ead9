"""The offline API: load a model in this process and generate text with it.

    from freehold import LLM, SamplingParams

    with LLM("smollm2") as llm:
        for completion in llm.generate(["Hello", "The sea"], SamplingParams(max_tokens=20)):
            print(completion.text)

It goes the same way as a request to the server: ids to the engine, events back, text made from them here.
"""

from freehold.llm.completion import Completion, Piece
from freehold.llm.model import LLM

__all__ = ["LLM", "Completion", "Piece"]
