"""A pydantic-ai agent over `freehold serve`: its answer is a checked object, which it gives by calling a tool.

freehold serve
pip install "pydantic-ai-slim[openai]"
python examples/pydantic_ai_agent.py
"""

import argparse

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    """A city of the world."""

    name: str = Field(max_length=40)
    country: str = Field(max_length=40)
    is_capital: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="smollm2")
    asked = parser.parse_args()

    provider = OpenAIProvider(base_url=asked.url, api_key="none")
    agent = Agent(OpenAIChatModel(asked.model, provider=provider), output_type=City)
    settings = {"temperature": 0.0, "max_tokens": 200, "parallel_tool_calls": False}
    result = agent.run_sync("Tell me of Paris, the capital of France.", model_settings=settings)
    print(f"city {result.output!r}")
    print(f"usage {result.usage}")


if __name__ == "__main__":
    main()
