"""A server with keys: the page asks for one once, and keeps it in the tab alone."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.server.page.conftest import Visit
from tests.server.running import Server, Start
from tests.server.test_keys import make_key

GIVEN = "operators-key"
NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
EVERYWHERE = "JSON.stringify([{...localStorage}, document.cookie, location.href, document.documentElement.outerHTML])"


@pytest.fixture
def closed(start: Start) -> Server:
    server = start(api_keys=(GIVEN,))
    server.says("ok")
    return server


def enter(page: Page, key: str) -> None:
    dialog = page.get_by_role("dialog", name="Key")
    expect(dialog).to_be_visible()
    dialog.get_by_label("API key").fill(key)
    dialog.get_by_label("API key").press("Enter")
    expect(dialog).to_be_hidden()


def test_the_key_is_asked_for_once_and_kept_in_the_tab(closed: Server, visit: Visit) -> None:
    page = visit(closed)
    page.add_init_script(NO_CLIPBOARD)
    enter(page, GIVEN)
    expect(page.locator("#sentence")).not_to_be_empty()
    page.reload()
    expect(page.locator("#sentence")).not_to_be_empty()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("Object.values(sessionStorage)") == [GIVEN]
    assert GIVEN not in page.evaluate(EVERYWHERE)

    page.goto(f"{closed.url}/#playground")
    page.get_by_label("Message").fill(closed.hi)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant .said").last).to_have_text("ok")
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.locator("#curl-text")).to_have_value(re.compile("FREEHOLD_API_KEY"))
    assert GIVEN not in page.locator("#curl-text").input_value()


@pytest.mark.slow
def test_a_wrong_key_and_none(closed: Server, visit: Visit) -> None:
    page = visit(closed)
    dialog = page.get_by_role("dialog", name="Key")
    expect(dialog).to_contain_text("this server needs a key")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert")).to_contain_text("This server wants a key")
    expect(dialog).to_be_hidden()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(1500)
    assert asked == [], "without another key it would be refused again"

    page.get_by_role("button", name="Key").click()
    enter(page, "a-wrong-key")
    expect(page.get_by_role("alert")).to_contain_text("the key is unknown, expired or revoked")

    page.get_by_role("button", name="Key").click()
    enter(page, GIVEN)
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.locator("#sentence")).not_to_be_empty()

    page.get_by_role("button", name="Key").click()
    dialog.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_role("alert")).to_contain_text("This server wants a key")
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.slow
def test_a_key_for_chats_alone_may_use_the_playground(start: Start, visit: Visit, tmp_path: Path) -> None:
    _, secret = make_key(tmp_path, "chats")
    server = start(state_dir=tmp_path)
    server.says("ok")
    page = visit(server, "#playground")
    enter(page, secret)
    expect(page.get_by_role("alert")).to_contain_text("This key may not see what others do")
    page.get_by_label("Message").fill(server.hi)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant .said").last).to_have_text("ok")
