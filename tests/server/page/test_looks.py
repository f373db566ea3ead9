"""How the page looks and what it is like without a mouse or without sight: both themes, wide and narrow."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.server.page.an_hour import hour
from tests.server.page.conftest import NARROW, WIDE, Visit
from tests.server.running import Server

CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text()
SEVERITIES = ("ok", "notice", "warning", "critical")


@pytest.fixture
def asked(server: Server) -> Server:
    """A server that has answered something, and failed at something."""
    server.says("Rivers: the Rhine.")
    server.chat()
    server.chat(temperature=1000)
    return server


def views(page: Page, server: Server) -> Iterator[str]:
    """Go through all that the page can show, one after the other."""
    expect(page.locator("#sentence")).to_be_visible()
    yield "live"
    page.locator("#request-table a").first.click()
    yield "request"
    page.get_by_role("link", name="Playground", exact=True).click()
    page.get_by_label("Message").fill(server.hi)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant")).to_have_attribute("aria-busy", "false")
    yield "playground"
    page.get_by_label("Tokens", exact=True).check()
    page.get_by_label("Tokens of the answer").get_by_role("option").first.click()
    yield "tokens"
    page.get_by_role("button", name="Shortcuts").click()
    yield "shortcuts"
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Key").click()
    yield "key"


def check_axe(page: Page, where: str) -> None:
    results = Axe().run(page)
    assert results.violations_count == 0, f"{where}: {results.generate_report()}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.slow
def test_everything_can_be_read_by_everyone(asked: Server, visit: Visit, scheme: str, viewport: dict[str, int]) -> None:
    body = hour(asked, "critical")
    page = visit(asked, told=body, color_scheme=scheme, viewport=viewport)
    for where in views(page, asked):
        check_axe(page, where)
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 20
        assert [one for one in contrasts if one["ratio"] < one["least"]] == [], where
        widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1], f"{where} scrolls sideways"


def test_the_live_view_can_be_read_by_everyone(asked: Server, visit: Visit) -> None:
    page = visit(asked, told=hour(asked), viewport=NARROW)
    expect(page.locator("#sentence")).to_be_visible()
    check_axe(page, "live")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_stand_out_from_their_ground(asked: Server, visit: Visit, scheme: str) -> None:
    """Lines, areas, stages and severities: a contrast of 3 with what they lie on."""
    page = visit(asked, told=hour(asked), color_scheme=scheme)
    expect(page.locator(".chart").first).to_be_visible()
    names = ["series-1", "series-2", "series-3", "series-4", "area-1", "area-3", "edge", "accent", *SEVERITIES]
    script = """names => { const node = document.createElement('i'); document.querySelector('.chart').append(node);
      return names.map(name => { node.textContent = name; node.style.color = `var(--${name})`;
        const found = (%s)().find(one => one.text === name); return [name, found.ratio]; }); }"""
    ratios = dict(page.evaluate(script % CONTRASTS, names))
    assert {name: ratio for name, ratio in ratios.items() if ratio < 3} == {}


@pytest.mark.slow
def test_the_theme_follows_the_system_until_it_is_chosen(server: Server, visit: Visit) -> None:
    page = visit(server, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    assert dark != light
    page.get_by_label("Colours").select_option("dark")
    assert page.evaluate(ground) == dark
    page.reload()
    assert page.evaluate(ground) == dark
    page.get_by_label("Colours").select_option("auto")
    assert page.evaluate(ground) == light


def test_numbers_are_not_broken_in_two(asked: Server, visit: Visit) -> None:
    """Tables that are too wide scroll by themselves."""
    page = visit(asked, told=hour(asked), viewport=NARROW)
    expect(page.locator("#sentence")).to_be_visible()
    num_lines = """cells => cells.map(cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size;
    })"""
    for cells in ("#latencies td", "#key-table td", ".read-at"):
        assert set(page.locator(cells).evaluate_all(num_lines)) == {1}


@pytest.mark.slow
def test_nothing_moves_for_who_wants_no_motion(asked: Server, visit: Visit) -> None:
    moving = """document.getAnimations().length +
      [...document.querySelectorAll('*')].filter(node => getComputedStyle(node).animationName !== 'none').length"""
    page = visit(asked, told=hour(asked), reduced_motion="reduce")
    for _ in views(page, asked):
        assert page.evaluate(moving) == 0


@pytest.mark.slow
def test_everything_works_without_a_mouse(asked: Server, visit: Visit) -> None:
    page = visit(asked, told=hour(asked))
    expect(page.locator("#sentence")).to_be_visible()
    stops = tab_through(page)
    assert stops[:5] == ["Skip to the content", "Live", "Playground", "Key", "Shortcuts"]
    sliders = [name for name in stops if name in {"Requests", "Time to first token", "KV cache", "Engine time"}]
    assert len(sliders) == 4
    assert "Hold list" in stops
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips the header
    expect(page.get_by_role("heading", level=1)).to_be_focused()

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_label("Filter by id")).to_be_focused()
    page.keyboard.type("mp")  # typed, no shortcuts
    expect(page.get_by_label("Filter by id")).to_have_value("mp")
    page.get_by_label("Filter by id").blur()
    page.keyboard.press("m")
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.type(asked.hi)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".turn.assistant")).to_have_attribute("aria-busy", "false")
    page.get_by_label("Text", exact=True).focus()
    page.keyboard.press("ArrowRight")
    chips = page.get_by_label("Tokens of the answer").get_by_role("option")
    chips.first.focus()
    page.keyboard.press("ArrowRight")
    expect(chips.nth(1)).to_be_focused()
    expect(chips.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("End")
    expect(chips.last).to_be_focused()
    expect(page.get_by_role("region", name="Chosen token")).to_contain_text(re.compile(r"Log probability\s*-"))


def tab_through(page: Page) -> list[str]:
    """Names of what the Tab key leads to, in order. The focus must be seen wherever it is."""
    names: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => { const node = document.activeElement; const label = node.labels?.[0]?.textContent;
              return [node === document.body ? '' : node.ariaLabel ?? label ?? node.textContent.trim(),
                      getComputedStyle(node).outlineStyle]; }"""
        )
        if name == "":
            break
        assert outline != "none", name
        names.append(name)
    return names


@pytest.mark.slow
def test_single_keys_can_be_switched_off(server: Server, visit: Visit) -> None:
    page = visit(server)
    page.get_by_role("button", name="Shortcuts").click()
    page.get_by_label("Single keys are shortcuts").uncheck()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Close").wait_for(state="hidden")
    page.locator("body").press("p")
    expect(page.locator("#live")).to_be_visible()
    page.reload()
    page.locator("body").press("p")
    expect(page.locator("#playground")).to_be_hidden()
