"""Pages for users: all can be found from the README, what they link to is there, and their Python can be read."""

import re
from pathlib import Path

import pytest

from freehold.settings import SETTINGS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def links(page: Path) -> dict[str, Path]:
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    return {link: page.parent / link for link in found if "://" not in link}


def test_the_readme_leads_to_every_page() -> None:
    reached = {target.resolve() for target in links(ROOT / "README.md").values()}
    assert set(ROOT.glob("docs/*.md")) <= reached


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_snippets_are_python(page: Path) -> None:
    assert not [link for link, target in links(page).items() if not target.exists()]
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        compile(snippet, page.name, "exec")


def test_every_setting_is_listed_with_its_default() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    rows = re.findall(r"^\| `(--[a-z-]+)`[^|]* \| ([^|]*) \|", page, re.MULTILINE)
    listed = [flag for flag, _ in rows]
    assert sorted(listed) == sorted(setting.flag for setting in SETTINGS)
    defaults = {setting.flag: setting.default for setting in SETTINGS}
    for flag, default in rows:
        fixed = re.match(r"`([^`]*)`", default) if defaults[flag] is not None else None
        assert defaults[flag] == (fixed[1] if fixed else None), flag
