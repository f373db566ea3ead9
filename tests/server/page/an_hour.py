"""The live JSON of a server, with an hour in it that has everything."""

from typing import Any

from tests.server.running import Server

NUM_POINTS = 100


def value_of(position: int, index: int) -> float:
    """What the column at this position of the list holds at this point: no two columns alike, all between 0 and 1."""
    return (position + 1) / 64 + index / 10_000


def hour(server: Server, severity: str = "ok") -> dict[str, Any]:
    """The server's own JSON, but for history, speculation, namespaces and the sentence."""
    body: dict[str, Any] = server.http.get("/debug/live").json()
    names = list(body["history"]["fine"]["columns"])
    for part, step_s in (("fine", 1), ("coarse", 15)):
        body["history"][part] = {
            "step_s": step_s,
            "at": [body["now"]["at"] - step_s * (NUM_POINTS - 1 - index) for index in range(NUM_POINTS)],
            "columns": {
                name: [value_of(position, index) for index in range(NUM_POINTS)] for position, name in enumerate(names)
            },
        }
    body["now"]["speculation"] = {"drafts_per_s": 3.0, "accepted": 0.61, "per_step": 2.4}
    body["now"]["kv"]["by_namespace"] = [{"name": "shared", "num_blocks": 40}, {"name": "a-team", "num_blocks": 12}]
    body["binding"] = {
        "code": "rows",
        "severity": severity,
        "sentence": "Rows are taken.",
        "settings": ["--max-num-seqs"],
    }
    return body
