"""The playground: it says what the API says, and what it is told by a model or a user stays text."""

import json
import shlex
import subprocess
import threading
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.server.page.conftest import Visit
from tests.server.running import Server, Start

from freehold.backends.script import FailStep, Gate, Pause

EVIL = '<img src=x onerror="document.title=\'taken\'"><script>document.title="taken"</script>'


def say(page: Page, text: str) -> None:
    """Send a message, and wait until the answer has ended."""
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant").last).to_have_attribute("aria-busy", "false")


def chips(page: Page, label: str) -> list[str]:
    """Texts of the last answer's chips, as the page knows them."""
    found: list[str] = (
        page.locator(".turn.assistant")
        .last.get_by_label(label, exact=True)
        .evaluate("list => [...list.children].map(chip => chip.token.text)")
    )
    return found


def test_an_answer_is_the_api_s_token_by_token(server: Server, visit: Visit) -> None:
    server.says("Rivers: the Rhine,\nthe Elbe. ", 5, 9)
    page = visit(server, "#playground")
    page.get_by_label("System prompt").fill("Be terse.")
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Alternatives per token").fill("3")
    say(page, server.hi)
    messages = [{"role": "system", "content": "Be terse."}, *server.messages]
    answer = server.chat(messages=messages, temperature=0, logprobs=True, top_logprobs=3, return_token_ids=True).json()
    choice, usage = answer["choices"][0], answer["usage"]
    expect(page.locator(".turn.assistant .said").last).to_have_text(choice["message"]["content"])

    page.get_by_label("Tokens", exact=True).check()
    tokens = page.get_by_label("Tokens of the answer").evaluate("list => [...list.children].map(chip => chip.token)")
    assert [token["id"] for token in tokens] == choice["token_ids"]
    scores = choice["logprobs"]["content"]
    assert [(token["text"], token["logprob"]) for token in tokens] == [(one["token"], one["logprob"]) for one in scores]
    assert [token["top"] for token in tokens] == [one["top_logprobs"] for one in scores]
    assert all(token["sinceMs"] >= 0 for token in tokens)
    tokenizer = server.tokenizer
    texts = [tokenizer.spell(token_id)[0] for token_id in server.post("/tokenize", messages=messages).json()["tokens"]]
    expect(page.get_by_label("Tokens of the prompt").get_by_role("option")).to_have_count(len(texts))
    assert chips(page, "Tokens of the prompt") == texts
    assert "".join(texts) == server.post("/apply-template", messages=messages).json()["prompt"]
    for shown in (f"Prompt {usage['prompt_tokens']}", f"answer {usage['completion_tokens']}", "finish reason stop"):
        expect(page.get_by_role("list", name="Usage").get_by_text(shown, exact=True)).to_be_visible()


@pytest.mark.slow
def test_cached_tokens_of_the_prompt_are_marked(start: Start, visit: Visit) -> None:
    server = start(engine={"block_size": 16})
    server.says("ok")
    page = visit(server, "#playground")
    page.get_by_label("Tokens", exact=True).check()
    for _ in range(2):
        page.get_by_role("button", name="Start over").click()
        say(page, server.hi)
        marked = page.get_by_label("Tokens of the prompt").locator(".cached").count()
        shown = page.get_by_role("list", name="Usage").get_by_text("cached").inner_text()
        assert shown == f"cached {marked}"
    whole = server.chat().json()["usage"]
    assert 0 < marked == whole["prompt_tokens_details"]["cached_tokens"]
    labels = page.get_by_label("Tokens of the prompt").evaluate(
        "list => [...list.children].map(chip => chip.ariaLabel)"
    )
    assert [label.endswith(", cached") for label in labels] == [True] * marked + [False] * (len(labels) - marked)


def test_stop_ends_the_request_in_the_engine(start: Start, visit: Visit) -> None:
    server, held = start(), threading.Event()
    server.says("One two three", *[Pause(0.05), 40] * 400)
    page = visit(server, "#playground")
    page.get_by_label("Max tokens").fill("400")
    page.get_by_label("Message").fill(server.hi)
    page.get_by_label("Message").press("Control+Enter")
    expect(page.locator(".turn.assistant .said").last).to_contain_text("One two three")
    assert server.engine.ledger().cancelled == 0
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("stopped by you")).to_be_visible()
    for _ in range(200):
        if server.engine.ledger().cancelled:
            break
        held.wait(0.05)
    assert server.engine.ledger().cancelled == 1
    server.says("ok")
    page.get_by_role("button", name="Start over").click()
    say(page, server.hi)


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_a_model_says_stays_text(server: Server, visit: Visit, stream: bool) -> None:
    server.says(EVIL)
    page = visit(server, "#playground")
    page.get_by_label("Stream").set_checked(stream)
    page.get_by_label("System prompt").fill(EVIL)
    say(page, server.hi + EVIL)
    expect(page.locator(".turn.assistant .said").last).to_have_text(EVIL)
    expect(page.locator(".turn.user .said")).to_have_text(server.hi + EVIL)
    page.get_by_label("Tokens", exact=True).check()
    page.get_by_label("Tokens of the answer").get_by_role("option").first.click()
    assert page.locator("main img, main script, main [onerror]").count() == 0
    assert page.title() == "Playground · Freehold"


@pytest.mark.slow
def test_a_conversation_goes_on_and_starts_over(server: Server, visit: Visit) -> None:
    server.says("ok")
    page = visit(server, "#playground")
    bodies: list[Any] = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if "chat" in request.url else None)
    say(page, server.hi)
    say(page, "And more?")
    page.get_by_role("button", name="Start over").click()
    say(page, server.hi)
    said = [[message["content"] for message in body["messages"]] for body in bodies]
    assert said == [[server.hi], [server.hi, "ok", "And more?"], [server.hi]]
    assert "top_k" not in bodies[0], "what is empty is left to the server"


@pytest.mark.slow
def test_starting_over_ends_the_answer_and_forgets_it(start: Start, visit: Visit) -> None:
    server = start()
    server.says("One two three", *[Pause(0.02), 40] * 400)
    page = visit(server, "#playground")
    page.get_by_label("Message").fill(server.hi)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant .said").last).to_contain_text("One two three")
    page.get_by_role("button", name="Start over").click()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    server.says("ok")
    with page.expect_request("**/v1/chat/completions") as caught:
        say(page, server.hi)
    assert caught.value.post_data_json["messages"] == server.messages


@pytest.mark.slow
def test_a_refusal_is_told(server: Server, visit: Visit) -> None:
    page = visit(server, "#playground")
    page.get_by_label("Temperature").fill("1000")
    say(page, server.hi)
    message = server.chat(temperature=1000).json()["error"]["message"]
    expect(page.locator(".turn.assistant .problem")).to_have_text(message)


@pytest.mark.slow
def test_a_fault_in_mid_answer_is_told(start: Start, visit: Visit) -> None:
    server = start()
    server.says("One two", FailStep(), 40)
    page = visit(server, "#playground")
    say(page, server.hi)
    expect(page.locator(".turn.assistant .said").last).to_have_text("One two")
    expect(page.locator(".turn.assistant .problem")).to_contain_text("scripted failure of a step")


@pytest.mark.slow
def test_the_command_repeats_the_request(server: Server, visit: Visit) -> None:
    server.says("It's <fine>.")
    page = visit(server, "#playground", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Stream").uncheck()
    page.get_by_label("System prompt").fill('It\'s "quoted" $HOME `id`\nand long')
    page.get_by_label("Message").fill(server.hi)
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.get_by_text("on the clipboard")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    assert shlex.split(command)[0] == "curl"
    done = subprocess.run(
        ["bash", "-c", command.replace("curl ", "curl -sS ", 1)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == "It's <fine>."


@pytest.mark.slow
def test_an_answer_grows_while_it_streams(start: Start, visit: Visit) -> None:
    server, opened = start(), threading.Event()
    server.says("One two", Gate(opened), " three")
    page = visit(server, "#playground")
    page.get_by_label("Message").fill(server.hi)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant .said").last).to_have_text("One two")
    expect(page.locator(".turn.assistant")).to_have_attribute("aria-busy", "true")
    opened.set()
    expect(page.locator(".turn.assistant .said").last).to_have_text("One two three")
    expect(page.get_by_role("status").filter(has_text="The answer has")).to_be_visible()
