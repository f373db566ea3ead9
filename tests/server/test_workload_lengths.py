"""Synthetic prompts against a server: it counts exactly the tokens that were asked for."""

import pytest

from freehold.loadtest.client.target import read_target
from freehold.loadtest.options import DatasetOptions
from freehold.loadtest.workloads.catalog import open_workload
from freehold.loadtest.workloads.served import asking


@pytest.mark.parametrize("form", ["text", "ids", "chat"])
def test_the_server_counts_what_was_asked_for(server, form):
    with asking(read_target(server.url + "/v1"), "test", form) as served:
        assert served.max_model_len == server.service.info.max_model_len
        load = open_workload(DatasetOptions(random_input_len=60, random_output_len=3, random_range_ratio=0.3), served)
    assert load.filler.is_exact
    for each in load.conversations(4, 11):
        (turn,) = each.turns
        if form == "chat":
            answer = server.chat(messages=[{"role": "user", "content": turn.prompt}], max_tokens=1)
        else:
            answer = server.complete(prompt=turn.prompt, max_tokens=1)
        assert answer.json()["usage"]["prompt_tokens"] == turn.input_len


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "{}/none"])
def test_a_server_that_counts_no_tokens(server, url):
    with asking(read_target(url.format(server.url)), "test", "text") as served:
        assert served.tokenize is None
