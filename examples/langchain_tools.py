"""A LangChain chat model over `freehold serve`: a forced call of a tool, its result, and an answer that is streamed.

freehold serve
pip install langchain-openai
python examples/langchain_tools.py
"""

import argparse

from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


@tool
def weather(city: str, days: int) -> str:
    """The weather in a city for the next days."""
    return f"It rains in {city} for {days} days."


class Summary(BaseModel):
    """What was said of the weather."""

    city: str = Field(max_length=40)
    rains: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="smollm2")
    asked = parser.parse_args()

    chat = ChatOpenAI(base_url=asked.url, model=asked.model, api_key="none", temperature=0, max_tokens=200)
    messages = [HumanMessage("What will the weather be in Oslo for the next 3 days?")]
    called = chat.bind_tools([weather], tool_choice="weather").invoke(messages)
    messages.append(called)
    for call in called.tool_calls:
        print(f"calls {call['name']} with {call['args']}")
        messages.append(ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]))

    whole = AIMessageChunk("")
    for chunk in chat.stream(messages):
        whole += chunk
    print(f"answers {whole.content!r}")

    summary = chat.with_structured_output(Summary).invoke(f"Summarize: {messages[-1].content}")
    print(f"summary {summary!r}")


if __name__ == "__main__":
    main()
