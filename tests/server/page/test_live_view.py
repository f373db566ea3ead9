"""The live view: it shows what the live JSON tells, and says so when there is none."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.server.page.conftest import Visit
from tests.server.running import Server, Start

from freehold.backends.script import Pause

Json = dict[str, Any]
HIDE = """Object.defineProperty(document, 'hidden', {value: true, configurable: true});
  document.dispatchEvent(new Event('visibilitychange'))"""
CHOSEN = {"severity", "stage"}
"""Fields whose few values the schema lists."""

EVIL = "<img src=x onerror=\"document.title='taken'\">"


@contextmanager
def holding(server: Server, num_requests: int) -> Iterator[None]:
    """Requests in mid-answer, or waiting for a row, until the block is left."""
    server.says("One two", *[Pause(0.02), 40] * 2000)
    body = json.dumps({"model": "test", "messages": server.messages, "stream": True, "max_tokens": 2000})
    head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as connections:
        for _ in range(num_requests):
            connection = connections.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\n{head}{body}".encode())
        yield


def told(page: Page, until: Any = lambda _: True) -> Json:
    """The newest JSON that the page was given, from the first on that `until` holds for; it gets no newer one."""
    with page.expect_response(lambda response: "/debug/live" in response.url and until(response.json())) as caught:
        pass
    page.route("**/debug/live*", lambda route: route.abort())
    body: Json = caught.value.json()
    expect(page.locator("#problem-text")).to_contain_text("can't be reached")
    return body


def test_it_shows_what_the_server_tells(start: Start, visit: Visit) -> None:
    server = start(engine={"max_num_seqs": 2})
    with holding(server, 5):
        page = visit(server)
        body = told(page, lambda body: body["binding"]["code"] == "rows" and body["now"]["waiting"]["rows"] == 3)
        binding, now = body["binding"], body["now"]
        assert binding["severity"] != "ok"
        expect(page.locator("#sentence")).to_have_text(binding["sentence"])
        assert page.locator("#settings code").all_inner_texts() == binding["settings"] == ["--max-num-seqs"]
        figures = dict(
            zip(
                page.locator("#figures dt").all_inner_texts(),
                page.locator("#figures .value").all_inner_texts(),
                strict=True,
            )
        )
        assert (
            (figures["Running"], figures["Waiting"])
            == (str(now["running"]), str(now["waiting"]["total"]))
            == ("2", "3")
        )
        assert figures["KV cache"] == shown_share(now["kv"]["used"])
        expect(page.locator("#latencies tr")).to_have_count(8)
        counts = page.locator("#latencies td:last-child").all_inner_texts()
        hour = body["latencies"][2]
        names = ("ttft", "tokenize", "compile", "queue", "prefill", "decode", "itl", "e2e")
        assert counts == [str(hour[name]["count"]) for name in names]
        (tier,) = now["kv"]["tiers"]
        parts = {name: tier[name] for name in ("held", "cached", "free")}
        shown = page.locator("#tiers .legend li").all_inner_texts()
        assert shown == [
            f"{name} {shown_share(num / tier['num_blocks'])} {num:,} blocks" for name, num in parts.items()
        ]
        (used,) = now["keys"]
        row = page.locator("#keys tr").inner_text().split("\t")
        assert row[:3] == ["no key", str(used["num_running"]), str(used["minute_requests"])]


def shown_share(share: float) -> str:
    """A share as the page writes it."""
    value = share * 100
    if 0 < value < 0.05:
        return "<0.1 %"
    return f"{value:.1f}".removesuffix(".0") + " %" if 0 < value < 9.95 else f"{round(value)} %"


def test_the_list_of_requests(start: Start, visit: Visit) -> None:
    server = start(engine={"max_num_seqs": 1})
    server.says("ok")
    server.http.post(
        "/v1/chat/completions", json={"model": "test", "messages": server.messages}, headers={"x-request-id": "done-1"}
    )
    with holding(server, 2):
        page = visit(server)
        body = told(page, lambda body: body["requests"]["num_live"] == 2)
        known = {one["id"]: one for one in [*body["requests"]["live"], *body["requests"]["ended"]]}
        rows = page.locator("#request-table tbody tr")
        expect(rows).to_have_count(3)
        states = dict(
            zip(
                rows.locator("a code").all_inner_texts(),
                rows.locator("td[data-name=State]").all_inner_texts(),
                strict=True,
            )
        )
        assert states.pop("done-1") == known["done-1"]["outcome"] == "stop"
        assert sorted(states.values()) == ["answering", "queued"]
        bar = rows.filter(has_text="done-1").get_by_role("img")
        assert [part.split(" ")[0] for part in bar.get_attribute("aria-label").split(", ")] == [
            "tokenize",
            "queue",
            "prefill",
            "answer",
        ]

        page.get_by_label("State").select_option("live")
        expect(rows).to_have_count(2)
        page.get_by_label("State").select_option("all")
        page.get_by_label("Filter by id").fill("DONE chat")
        expect(rows).to_have_count(1)
        expect(page.locator("#request-summary")).to_have_text("1 of 3 requests")

        page.get_by_role("link", name="done-1").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Request done-1")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        facts = dict(
            zip(
                page.locator("#request-facts dt").all_inner_texts(),
                page.locator("#request-facts dd").all_inner_texts(),
                strict=True,
            )
        )
        assert facts["Output tokens"] == str(known["done-1"]["num_output_tokens"])
        assert facts["HTTP status"] == "200"
        expect(page.locator("#request-stages tr")).to_have_count(4)
        page.go_back()
        expect(page.locator("#live")).to_be_visible()


@pytest.mark.slow
def test_the_list_can_be_held_still(server: Server, visit: Visit) -> None:
    server.says("ok")
    server.chat()
    page = visit(server)
    rows = page.locator("#request-table tbody tr")
    expect(rows).not_to_have_count(0)
    page.get_by_role("button", name="Hold list").click()
    before = rows.count()
    headers = {"x-request-id": "while-held"}
    with page.expect_response(lambda response: "/debug/live" in response.url and "while-held" in response.text()):
        server.http.post("/v1/chat/completions", json={"model": "test", "messages": server.messages}, headers=headers)
    expect(page.locator("#request-summary")).to_contain_text("held")
    assert rows.count() == before
    page.get_by_role("button", name="Hold list").click()
    expect(page.get_by_role("link", name="while-held")).to_be_visible()


@pytest.mark.slow
def test_requests_of_the_same_id_stand_beside_each_other(server: Server, visit: Visit) -> None:
    server.says("ok")
    server.chat()
    body = server.http.get("/debug/live").json()
    body["requests"] |= {"live": [], "ended": body["requests"]["ended"][-1:] * 3}
    later = {**body, "requests": {"num_live": 0, "live": [], "ended": []}}
    page = visit(server, told=body)
    rows = page.locator("#request-table tbody tr")
    expect(rows).to_have_count(3)
    page.route("**/debug/live*", lambda route: route.fulfill(json=later))
    for _ in range(2):
        with page.expect_response("**/debug/live*"):
            pass
    assert rows.count() == 3


def test_names_that_others_made_stay_text(server: Server, visit: Visit) -> None:
    """Keys' names, ids and sentences: whatever the JSON holds."""

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: inner if name in CHOSEN else poison(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [poison(inner) for inner in value]
        return value + EVIL if isinstance(value, str) else value

    server.says("ok")
    server.chat()
    body = poison(server.http.get("/debug/live").json())
    body["now"]["kv"]["by_namespace"] = [{"name": EVIL, "num_blocks": 3}]
    body["binding"]["settings"] = [EVIL]
    page = visit(server, told=body)
    expect(page.locator("#sentence")).to_contain_text("<img")
    page.locator("#request-table a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img")
    assert page.locator("main img, main script, [onerror]").count() == 0
    assert page.title() == "Request · Freehold"


@pytest.mark.slow
def test_numbers_stay_while_the_server_cannot_be_reached(server: Server, visit: Visit) -> None:
    page = visit(server)
    expect(page.locator("#sentence")).not_to_be_empty()
    page.route("**/debug/live*", lambda route: route.abort())
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server can't be reached. The numbers are those of")
    expect(alert).to_contain_text("Next try in 2 s.")
    expect(page.locator("#figures .value").first).to_have_text("0")
    page.unroute("**/debug/live*")
    page.get_by_role("button", name="Try now").click()
    expect(alert).to_be_hidden()
    expect(page.locator("#updated")).to_contain_text("Updated")


@pytest.mark.slow
def test_it_asks_no_more_while_nobody_looks(server: Server, visit: Visit) -> None:
    page = visit(server)
    expect(page.locator("#sentence")).not_to_be_empty()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(HIDE)
    page.wait_for_timeout(300)  # an answer that was under way
    asked.clear()
    page.wait_for_timeout(1500)
    assert asked == []
    with page.expect_request("**/debug/live?since=*"):
        page.evaluate(HIDE.replace("true", "false", 1))


@pytest.mark.slow
def test_before_the_first_request(start: Start, visit: Visit) -> None:
    page = visit(start())
    expect(page.get_by_text("No requests yet.")).to_be_visible()
    expect(page.get_by_text("No requests within the last hour.")).to_be_visible()
    page.get_by_role("link", name="Send one from the playground").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Playground")


@pytest.mark.slow
def test_an_engine_that_is_down_is_told(start: Start, visit: Visit) -> None:
    server = start()
    page = visit(server)
    expect(page.locator("#engine-problem")).to_be_hidden()
    server.service.load.is_draining = True
    expect(page.locator("#engine-problem")).to_contain_text("the server is shutting down")
    server.service.load.is_draining = False


@pytest.mark.slow
def test_how_bad_it_is_shows_in_word_and_shape(server: Server, visit: Visit) -> None:
    body = server.http.get("/debug/live").json()
    page = visit(server, told=body)
    outlines = set()
    for severity, word in {"ok": "Fine", "notice": "Note", "warning": "Limited", "critical": "In trouble"}.items():
        body["binding"] = {
            "code": f"a {severity} one",
            "severity": severity,
            "sentence": f"It is {severity}.",
            "settings": [],
        }
        expect(page.locator("#sentence")).to_have_text(f"It is {severity}.")
        expect(page.locator("#severity")).to_have_text(word)
        expect(page.get_by_role("status").first).to_have_text(f"{word}: It is {severity}.")
        outlines.add(page.locator("#severity-icon .outline").get_attribute("d"))
    assert len(outlines) == 4
