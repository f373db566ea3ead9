"""The live page in a real browser: headless Chromium, which finds nothing but this machine."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.server.running import Server

pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install '.[test]')")

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 360, "height": 740}

Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a file. Its driver keeps an event loop running in this thread, where other files'
    tests then could start none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("Chromium is not installed (Debian, Ubuntu: apt install chromium)")
    # Root can't have Chromium's sandbox; and whatever isn't this machine can't be found.
    arguments = ["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visit]:
    """Opens the page in a profile of its own. Afterwards: no script failed, no policy was violated, and no other host
    was asked for anything."""
    complaints: list[str] = []
    asked: list[tuple[Server, str]] = []
    contexts = []

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    def open_page(server: Server, fragment: str = "", *, told: dict[str, Any] | None = None, **options: Any) -> Page:
        """
        Args:
            told: the live JSON that the page is given instead of the server's; it may be changed later on.
            options: of the browser's context.
        """
        context = chromium.new_context(**{"viewport": WIDE, **options})
        contexts.append(context)
        page = context.new_page()
        if told is not None:
            page.route("**/debug/live*", lambda route: route.fulfill(json=told))
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append((server, request.url)))
        page.goto(f"{server.url}/{fragment}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints
    assert [url for server, url in asked if not url.startswith(f"{server.url}/")] == []
