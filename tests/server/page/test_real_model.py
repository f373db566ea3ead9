"""The page of `freehold serve` with the real model, in one process for HTTP and one for the engine."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.server.page.conftest import Visit
from tests.server.test_end_to_end import Served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(smollm2_path: Path) -> Iterator[Served]:
    server = Served(smollm2_path, "--max-num-seqs", "2")
    yield server
    server.stop()


def test_the_playground_and_the_stages_of_its_request(served: Served, visit: Visit) -> None:
    page = visit(served, "#playground")
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Max tokens").fill("24")
    page.get_by_label("Message").fill("Name three rivers.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant")).to_have_attribute("aria-busy", "false", timeout=60_000)
    answer = served.client.chat.completions.create(
        model=served.model,
        messages=[{"role": "user", "content": "Name three rivers."}],
        temperature=0,
        top_p=0.9,
        max_tokens=24,
        logprobs=True,
        extra_body={"return_token_ids": True},
    )
    choice = answer.choices[0]
    expect(page.locator(".turn.assistant .said").last).to_have_text(choice.message.content or "")
    page.get_by_label("Tokens", exact=True).check()
    tokens = page.get_by_label("Tokens of the answer").evaluate("list => [...list.children].map(chip => chip.token)")
    assert [token["id"] for token in tokens] == choice.model_extra["token_ids"]
    assert choice.logprobs is not None
    assert [token["logprob"] for token in tokens] == [score.logprob for score in choice.logprobs.content or ()]

    page.get_by_role("link", name="Its stages").click()
    stages = page.locator("#request-stages th")
    expect(stages).to_have_text(["tokenize", "queue", "prefill", "answer"])
    facts = page.locator("#request-facts")
    expect(facts).to_contain_text("chat, streamed")
    expect(facts).to_contain_text("24")


def test_an_engine_that_hangs_is_told_and_the_page_recovers(served: Served, visit: Visit) -> None:
    page = visit(served)
    expect(page.locator("#about")).to_contain_text("Engine starts1")
    os.kill(served.engine_pid(), signal.SIGSTOP)  # a dead one is replaced sooner than the page would look
    expect(page.locator("#engine-problem")).to_contain_text("Nothing can be generated now:", timeout=30_000)
    expect(page.locator("#banner")).to_have_attribute("data-severity", "critical")
    expect(page.locator("#engine-problem")).to_be_hidden(timeout=60_000)
    expect(page.locator("#about")).to_contain_text("Engine starts2")


def test_a_server_that_is_gone(smollm2_path: Path, visit: Visit) -> None:
    server = Served(smollm2_path)
    page = visit(server)
    expect(page.locator("#sentence")).not_to_be_empty()
    server.stop()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server can't be reached. The numbers are those of", timeout=30_000)
    expect(page.locator("#figures .value").first).to_be_visible()
