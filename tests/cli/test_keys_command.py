"""``freehold keys`` as a person meets it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_commands import TIMEOUT_S, check_user_error, freehold


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_key_is_shown_once_listed_without_its_secret_and_revoked(home: Path) -> None:
    made = freehold("keys", "create", "ci", "--requests-per-minute", "60", "--expires", "30d", home=home)
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    match = re.fullmatch(r"fh-([a-z2-7]{8})-[\w-]{43}", secret)
    assert match, "nothing else is on stdout, so that scripts can keep it"
    listed = freehold("keys", "list", home=home)
    row = listed.stdout.splitlines()[1]
    assert row.startswith(f"{match[1]}  ci    active")
    assert "60 requests/minute" in row
    assert secret not in listed.stdout
    assert freehold("keys", "revoke", "ci", home=home).stdout == f"revoked {match[1]} (ci)\n"
    assert "  revoked  " in freehold("keys", "list", home=home).stdout
    check_user_error(freehold("keys", "revoke", "ci", home=home), "ci", "keys list")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([""], "printable"),
        (["a\nb"], "printable"),
        (["x", "--expires", "yesterday"], "30d"),
        (["x", "--expires", "2020-01-01"], "over already"),
        (["x", "--endpoints", "chat,chats"], "'chats'"),
        (["x", "--models", "a,,b"], "empty name"),
    ],
)
def test_what_makes_no_sense_is_refused(home: Path, arguments: list[str], words: str) -> None:
    check_user_error(freehold("keys", "create", *arguments, home=home), words)
    assert not list(home.glob("**/*.sqlite"))


def test_a_server_for_other_machines_needs_a_key(home: Path, smollm2_path: Path) -> None:
    check_user_error(
        freehold("serve", str(smollm2_path), "--host", "0.0.0.0", home=home), "keys create", "--allow-no-key"
    )


def test_given_keys_are_never_shown(home: Path, smollm2_path: Path) -> None:
    shown = freehold(
        "serve", str(smollm2_path), "--show-config", home=home, FREEHOLD_API_KEY="a-secret-key,another-one"
    )
    assert re.search(r"^api_key +2 hidden +FREEHOLD_API_KEY$", shown.stdout, re.MULTILINE)
    check_user_error(freehold("serve", str(smollm2_path), home=home, FREEHOLD_API_KEY="ein-schlüssel"), "visible ASCII")
    for done in (shown, freehold("serve", str(smollm2_path), "--api-key", "short", home=home)):
        assert "secret" not in done.stdout + done.stderr
        assert "short" not in done.stderr


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["MODEL", "--served-model-name", "a", "b", "--port", "1"], "a, b"),
        (["MODEL", "--served-model-name", "a,b", "--served-model-name", "c"], "a, b, c"),
        (["--served-model-name", "a", "MODEL"], "a"),
    ],
)
def test_a_model_has_as_many_names_as_are_given(smollm2_path: Path, given: list[str], names: str) -> None:
    arguments = [str(smollm2_path) if argument == "MODEL" else argument for argument in given]
    shown = freehold("serve", *arguments, "--show-config")
    assert shown.returncode == 0, shown.stderr
    assert re.search(rf"^served_model_name +{names}  ", shown.stdout, re.MULTILINE)


def test_names_that_no_model_has_are_noted(home: Path) -> None:
    """The key is made all the same: a server elsewhere, or a later one, may have that name."""
    made = freehold("keys", "create", "a", "--models", "smollm2,smolm2", home=home)
    assert made.returncode == 0
    assert made.stdout.startswith("fh-")
    assert "note: 'smolm2' is in no store" in made.stderr
    assert "smollm2'" not in made.stderr
    known = freehold("keys", "create", "b", "--models", "mine", home=home, FREEHOLD_SERVED_MODEL_NAME="mine,other")
    assert "note" not in known.stderr


def test_a_key_that_cannot_be_shown_is_removed_again(home: Path) -> None:
    """Else it would be in use with a secret that nobody has, and as the first one close the server to everybody."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "freehold", "keys", "create", "ci", "--state-dir", str(home)],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"^freehold: the key couldn't be shown, so [a-z2-7]{8} was removed again$", done.stderr, re.M)
    assert freehold("keys", "list", "--state-dir", str(home)).stdout.startswith("no keys")
