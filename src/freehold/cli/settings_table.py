"""Settings as ``freehold serve --show-config`` prints them."""

from collections.abc import Mapping
from typing import Any

from freehold.resolve import Value
from freehold.setting_kinds import format_size, format_span, parse_size, parse_span
from freehold.settings import SETTINGS_BY_NAME


def settings_table(values: Mapping[str, Value]) -> str:
    """Settings, their values and sources, one a line."""
    rows = [(name, _shown(name, value.value), value.source) for name, value in values.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {source}" for name, value, source in rows)


def _shown(name: str, value: Any) -> str:
    setting = SETTINGS_BY_NAME[name]
    if setting.is_secret and isinstance(value, tuple):
        return f"{len(value)} hidden"
    if isinstance(value, tuple):
        return ", ".join(value)
    if setting.is_switch:
        return str(value).lower()
    if setting.kind.parse is parse_span and isinstance(value, float):
        return format_span(value)
    return format_size(value) if setting.kind.parse is parse_size and isinstance(value, int) else str(value)
