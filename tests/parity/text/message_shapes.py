"""Chats of every shape a server meets, for comparing renderings."""

from typing import Any

Message = dict[str, Any]


def _system(text: Any = "You are terse.") -> Message:
    return {"role": "system", "content": text}


def _user(text: Any = "What is 2+2?") -> Message:
    return {"role": "user", "content": text}


def _assistant(text: Any = "4", **fields: Any) -> Message:
    return {"role": "assistant", "content": text, **fields}


def _call(name: str = "get_weather", arguments: Any = None, call_id: str = "call00001") -> Message:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": {"city": "Zürich"} if arguments is None else arguments},
    }


def _tool(text: str = '{"temp": 21.5}', call_id: str = "call00001") -> Message:
    return {"role": "tool", "content": text, "tool_call_id": call_id, "name": "get_weather"}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather \"now\" <here> & 'there' in größeren Städten",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1, "minimum": 0.5}},
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object"}}}

SHAPES: dict[str, tuple[list[Message], dict[str, Any]]] = {
    "user": ([_user()], {}),
    "user, no prompt": ([_user()], {"add_generation_prompt": False}),
    "system and user": ([_system(), _user()], {}),
    "system alone": ([_system()], {}),
    "two systems": ([_system(), _system("And kind."), _user()], {}),
    "late system": ([_user(), _assistant(), _system("Now rhyme."), _user("Go on")], {}),
    "developer": ([{"role": "developer", "content": "Be brief."}, _user()], {}),
    "two turns": ([_user(), _assistant(), _user("And 3+3?")], {}),
    "four turns": ([_system(), _user(), _assistant(), _user("b"), _assistant("c"), _user("d")], {}),
    "ends with assistant": ([_user(), _assistant()], {"add_generation_prompt": False}),
    "ends with assistant, prompt": ([_user(), _assistant()], {"add_generation_prompt": True}),
    "user twice": ([_user("a"), _user("b")], {}),
    "assistant first": ([_assistant("Hello!"), _user()], {}),
    "assistant twice": ([_user(), _assistant("a"), _assistant("b"), _user()], {}),
    "empty user": ([_user("")], {}),
    "empty assistant": ([_user(), _assistant(""), _user()], {}),
    "empty system": ([_system(""), _user()], {}),
    "white space": ([_system("  s \n"), _user("\n\n x\t "), _assistant("  y  "), _user(" z\n")], {}),
    "line ends": ([_user("a\r\nb\rc\n\nd")], {}),
    "unicode": ([_system("日本語で"), _user("Grüße 👩\u200d👩\u200d👧 \u200fשלום\u200e e\u0301")], {}),
    "braces": ([_user("{{ x }} {% if a %} {# c #} {{'{'}}")], {}),
    "html": ([_user("<b>&amp; \"q\" 'a' </b>")], {}),
    "code": ([_user("```python\nprint('<|x|>')\n```")], {}),
    "long": ([_user("word " * 5000)], {}),
    "many turns": ([_user("q"), _assistant("a")] * 40 + [_user("last")], {}),
    "numbers as text": ([_user("0"), _assistant("1.0"), _user("-2")], {}),
    "control characters": ([_user("a\x00b\x07c\x1b[0m")], {}),
    "null fields": ([{**_user(), "name": None, "tool_calls": None}], {}),
    "name": ([{**_user(), "name": "Ann"}], {}),
    "unknown field": ([{**_user(), "extra": {"a": [1, 2, {"b": None}]}}], {}),
    "tools offered": ([_user("Weather?")], {"tools": [WEATHER]}),
    "two tools offered": ([_system(), _user("Weather?")], {"tools": [WEATHER, CLOCK]}),
    "no tools in list": ([_user("Weather?")], {"tools": []}),
    "tool call": ([_user("W?"), _assistant("", tool_calls=[_call()]), _tool()], {"tools": [WEATHER]}),
    "tool call with text": (
        [_user("W?"), _assistant("Let me see.", tool_calls=[_call()]), _tool()],
        {"tools": [WEATHER]},
    ),
    "two tool calls": (
        [
            _user("W?"),
            _assistant("", tool_calls=[_call(), _call("now", {}, "call00002")]),
            _tool(),
            _tool("12:00", "call00002"),
        ],
        {"tools": [WEATHER, CLOCK]},
    ),
    "tool call answered": (
        [_user("W?"), _assistant("", tool_calls=[_call()]), _tool(), _assistant("21.5 °C"), _user("Thanks")],
        {"tools": [WEATHER]},
    ),
    "tool arguments as text": (
        [_user("W?"), _assistant("", tool_calls=[_call(arguments='{"city": "Bern"}')]), _tool()],
        {"tools": [WEATHER]},
    ),
    "tool arguments nested": (
        [
            _user("W?"),
            _assistant("", tool_calls=[_call(arguments={"a": [1, 2.5, True, None, {"ü": "</x>"}]})]),
            _tool(),
        ],
        {"tools": [WEATHER]},
    ),
    "tool call without tools": ([_user("W?"), _assistant("", tool_calls=[_call()]), _tool(), _user("And?")], {}),
    "reasoning": ([_user(), _assistant("4", reasoning_content="Two and two."), _user("Sure?")], {}),
    "reasoning last": ([_user(), _assistant("4", reasoning_content="Two.")], {"add_generation_prompt": False}),
    "thinking field": ([_user(), _assistant("4", thinking="Two and two."), _user("Sure?")], {}),
    "think tags": ([_user(), _assistant("<think>\nTwo.\n</think>\n\n4"), _user("Sure?")], {}),
    "think tags twice": ([_user(), _assistant("<think>a</think>b</think>c"), _user("Sure?")], {}),
    "thinking off": ([_user()], {"enable_thinking": False}),
    "thinking on": ([_user(), _assistant("<think>a</think>b"), _user()], {"enable_thinking": True}),
    "other variable": ([_user()], {"date_string": "1 Jan 2030", "custom_flag": [1, {"a": "b"}]}),
    "continue": ([_user(), _assistant("According to")], {"continue_final_message": True}),
    "continue, space": ([_user(), _assistant("According to ")], {"continue_final_message": True}),
    "continue, lines": ([_user(), _assistant("  a\n\n")], {"continue_final_message": True}),
    "continue, system": ([_system(), _user(), _assistant("The answer: ")], {"continue_final_message": True}),
    "parts": ([_user([{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}])], {}),
    "parts everywhere": (
        [_system([{"type": "text", "text": "S"}]), _user([{"type": "text", "text": "U"}]), _assistant("A"), _user("V")],
        {},
    ),
}
