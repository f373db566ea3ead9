"""The values of ``format`` that are enforced, each as a schema; patterns are in Rust's syntax.

JSON Schema lets ``format`` be a remark; here it is a rule. Where a standard allows what no regular expression can
tell, these are narrower than the standard, never wider.
"""

from collections.abc import Mapping
from typing import Any

# RFC 3339. A leap second is at 23:59:60 in UTC; with other offsets, none is allowed.
_YEAR = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_MONTH_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = rf"(?:{_YEAR}-{_MONTH_DAY}|{_LEAP_YEAR}-02-29)"
_HOUR_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"
_TIME = (
    rf"(?:{_HOUR_MINUTE}:[0-5][0-9]{_FRACTION}(?:[zZ]|[+\-]{_HOUR_MINUTE})"
    rf"|23:59:60{_FRACTION}(?:[zZ]|[+\-]00:00))"
)

# RFC 3339, appendix A.
_DAYS = r"[0-9]+D"
_MONTHS = rf"[0-9]+M(?:{_DAYS})?"
_SECONDS = r"[0-9]+S"
_MINUTES = rf"[0-9]+M(?:{_SECONDS})?"
_CLOCK = rf"T(?:[0-9]+H(?:{_MINUTES})?|{_MINUTES}|{_SECONDS})"
_DURATION = rf"P(?:(?:[0-9]+Y(?:{_MONTHS})?|{_MONTHS}|{_DAYS})(?:{_CLOCK})?|{_CLOCK}|[0-9]+W)"

# RFC 1123. Labels with hyphens in third and fourth place are reserved for encoded ones, which may be malformed.
_ALNUM = "[0-9A-Za-z]"
_LDH = r"[0-9A-Za-z\-]"
_LABEL = (
    rf"(?:{_ALNUM}(?:{_LDH}?{_ALNUM})?|{_ALNUM}{_LDH}{{2}}{_ALNUM}"
    rf"|{_ALNUM}{_LDH}(?:{_ALNUM}{_LDH}|-{_ALNUM}){_LDH}{{0,58}}{_ALNUM})"
)
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"

# RFC 5321.
_ATOM = r"[0-9A-Za-z!#$%&'*+\-/=?^_`{|}~]+"
_LOCAL = rf"(?:{_ATOM}(?:\.{_ATOM})*|\"(?:[ !#-\[\]-~]|\\[ -~])*\")"

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"

# RFC 4291: up to seven groups may be left out once.
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"


def _groups_before(most: int) -> str:
    return rf"(?:(?:{_H16}:){{0,{most - 1}}}{_H16})?" if most else ""


_IPV6 = "(?:{})".format(
    "|".join(
        [
            rf"(?:{_H16}:){{6}}{_LS32}",
            *(rf"{_groups_before(before)}::(?:{_H16}:){{{5 - before}}}{_LS32}" for before in range(6)),
            rf"{_groups_before(6)}::{_H16}",
            rf"{_groups_before(7)}::",
        ]
    )
)

# RFC 3986.
_ESCAPED = "%[0-9A-Fa-f]{2}"
_PLAIN = r"0-9A-Za-z\-._~!$&'()*+,;="
_PCHAR = rf"(?:[{_PLAIN}:@]|{_ESCAPED})"
_SCHEME = r"[A-Za-z][0-9A-Za-z+\-.]*"
_HOST = rf"(?:\[(?:{_IPV6}|[vV][0-9A-Fa-f]+\.[{_PLAIN}:]+)\]|(?:[{_PLAIN}]|{_ESCAPED})*)"
_AUTHORITY = rf"(?:(?:[{_PLAIN}:]|{_ESCAPED})*@)?{_HOST}(?::[0-9]*)?"
_ROOTED = rf"//{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = rf"{_SCHEME}:(?:{_ROOTED}|{_PCHAR}+(?:/{_PCHAR}*)*|){_TAIL}"
_FIRST_WITHOUT_COLON = rf"(?:[{_PLAIN}@]|{_ESCAPED})+"
_RELATIVE = rf"(?:{_ROOTED}|{_FIRST_WITHOUT_COLON}(?:/{_PCHAR}*)*|){_TAIL}"

# RFC 6901.
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"


def _matching(pattern: str) -> dict[str, Any]:
    return {"pattern": f"^(?:{pattern})$"}


FORMATS: Mapping[str, dict[str, Any]] = {
    "date": _matching(_DATE),
    "time": _matching(_TIME),
    "date-time": _matching(rf"{_DATE}[tT]{_TIME}"),
    "duration": _matching(_DURATION),
    "hostname": {**_matching(_HOSTNAME), "maxLength": 253},
    "email": _matching(rf"{_LOCAL}@(?:{_HOSTNAME}|\[(?:{_IPV4}|IPv6:{_IPV6})\])"),
    "ipv4": _matching(_IPV4),
    "ipv6": _matching(_IPV6),
    "uri": _matching(_URI),
    "uri-reference": _matching(rf"{_URI}|{_RELATIVE}"),
    "uuid": _matching(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    "json-pointer": _matching(_POINTER),
    "relative-json-pointer": _matching(rf"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"),
    # OpenAPI's. Of 64 bits, the largest numbers that a double holds are a little smaller than the largest of all.
    "int32": {"minimum": -(2**31), "maximum": 2**31 - 1},
    "int64": {"minimum": -(2**63 - 1024), "maximum": 2**63 - 1024},
    "float": {},
    "double": {},
    "byte": _matching(r"(?:[0-9A-Za-z+/]{4})*(?:[0-9A-Za-z+/]{2}==|[0-9A-Za-z+/]{3}=)?"),
    "password": {},
}
