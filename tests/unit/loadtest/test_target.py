"""URLs of servers: what of them would be dropped is refused."""

import pytest

from freehold.errors import ConfigError
from freehold.loadtest.client.target import read_target


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://u:secret@host/", "--header"),
        ("http://u@host", "--header"),
        ("http://:secret@host", "--header"),
        ("https://host/v1?y=secret", "query"),
        ("http://host#part", "fragment"),
    ],
)
def test_parts_that_requests_would_lose_are_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_target(url)
    said = str(raised.value)
    assert said.startswith("--base-url can't")
    assert words in said
    assert "secret" not in said, "passwords and keys stay out of logs"


@pytest.mark.parametrize("url", ["http://host", "http://host/", "http://host/v1", "http://host/v1/?"])
def test_a_plain_url_is_taken(url: str) -> None:
    assert read_target(url).url == "http://host"
