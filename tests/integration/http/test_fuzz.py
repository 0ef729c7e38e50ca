"""Random requests to every operation: no answer is a bug, and every answer is as the document describes it."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

import pytest

from holdfast import Every, Schedule
from holdfast.hosts.http.openapi import openapi_document
from holdfast.hosts.http.table import OPERATIONS
from tests.integration.http.api import Api
from tests.integration.http.programs import report
from tests.integration.http.test_runs import start
from tests.sizes import sized

pytestmark = pytest.mark.anyio

IDS: Final = ("one", "two", "three")
TEXTS: Final = (
    *IDS,
    *(
        "",
        "x",
        "a/b",
        "..",
        "é",
        "\U0001f600",
        "\x00",
        "\n",
        "\u2028",
        "'; --",
        "%",
        "*",
        "0",
        "-1",
        "null",
        "g1",
    ),
    *("queue:default", "run:k", "stage:report/reported", "approval", "Board.move", "1.a", "x" * 300),
    *("2026-11-26T09:00:00Z", "2026-11-26T09:00:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"),
)
NUMBERS: Final = (0, 1, 2, 3, -1, 100, 10**6, 2**31, 2**53, 2**63, 10**30, 0.5, -0.0, 1e15, 1e300)
KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "channel": ("approval",),
    "code": ("forbidden", "run_not_found"),
    "worker": ("none",),
    "token": ("none",),
    "topic": ("orders",),
    "completion": ("bm9uZQ.0123456789abcdef0123456789abcdef", "none"),
    "number": ("1", "2"),
    "label": ("victim",),
    "key": ("k",),
    "name": ("nightly", "queue:default", "audit", "state", "Board.move", "ship"),
    "namespace": ("shop",),
    "run_id": IDS,
}
SCHEMAS: Final[Mapping[str, Any]] = openapi_document(OPERATIONS)["components"]["schemas"]


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.service, pytest.mark.other_store])]
)
def url(request: pytest.FixtureRequest, tmp_path: Path, new_sqlite: Callable[[Path], str]) -> str:
    """A store of each kind, for the bounds of its columns."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_database")
        return found
    return new_sqlite(tmp_path / "holdfast.db")


class Fuzzer:
    """Makes values: mostly of the form that a schema describes, sometimes others."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def any_value(self, depth: int = 0) -> Any:
        kind = self.random.randrange(7 if depth < 3 else 4)
        if kind == 0:
            return self.random.choice((None, True, False))
        if kind == 1:
            return self.random.choice(NUMBERS)
        if kind in {2, 3}:
            return self.random.choice(TEXTS)
        several = [self.any_value(depth + 1) for _ in range(self.random.randrange(3))]
        return several if kind == 4 else {self.random.choice(TEXTS): one for one in several}

    def value(self, schema: Mapping[str, Any]) -> Any:
        if self.random.random() < 0.1:
            return self.any_value()
        if "$ref" in schema:
            return self.object(SCHEMAS[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            return self.value(self.random.choice(schema["anyOf"]))
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        kinds = cast("list[str] | str", schema.get("type", "any"))
        kind = kinds if isinstance(kinds, str) else self.random.choice(kinds)
        match kind:
            case "string":
                return self.random.choice(TEXTS)
            case "integer" | "number":
                return self.random.choice(NUMBERS)
            case "boolean":
                return self.random.choice((True, False))
            case "null":
                return None
            case "array":
                return [self.value(schema["items"]) for _ in range(self.random.randrange(3))]
            case "object" if isinstance(schema.get("additionalProperties"), dict):
                names = self.random.sample(TEXTS, self.random.randrange(3))
                return {name: self.value(schema["additionalProperties"]) for name in names}
            case _:
                return self.any_value()

    def object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        needed = schema.get("required", ())
        return {
            name: self.value(one)
            for name, one in schema.get("properties", {}).items()
            if name in needed or self.random.random() < 0.3
        }

    def segment(self, name: str) -> str:
        """Return a parameter of a path: mostly one that leads somewhere."""
        return self.random.choice(KNOWN[name] if self.random.random() < 0.7 else TEXTS)

    def request(self) -> tuple[str, str, bytes | None, dict[str, str]]:
        path, method, operation = self.random.choice(REQUESTS)
        segments = [
            quote(self.segment(one[1:-1]), safe="") if one.startswith("{") else one for one in path.split("/")
        ]
        url = "/".join(segments)
        parameters = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
        query = [
            (one["name"], _text(self.value(one["schema"])))
            for one in self.random.sample(parameters, self.random.randrange(len(parameters) + 1))
        ]
        headers = {
            name: self.random.choice(texts)
            for name, texts in (
                ("Prefer", ("wait=0", "wait=x", "respond-async")),
                ("If-Match", ('"g1"', "g2", "*")),
                ("If-None-Match", ("*", 'W/"x"')),
                ("Idempotency-Key", ("k", "k2", "x" * 300)),
            )
            if self.random.random() < 0.1
        }
        content = None
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            content = json.dumps(self.value(schema)).encode()
            headers["Content-Type"] = "application/json"
        return method.upper(), f"{url}?{urlencode(query)}" if query else url, content, headers


REQUESTS: Final = [
    (path, method, operation)
    for path, methods in openapi_document(OPERATIONS)["paths"].items()
    for method, operation in methods.items()
]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("seed", range(2))
async def test_no_request_is_a_bug(api: Api, seed: int) -> None:
    for run_id in IDS:
        await start(api, "approved", {"order": {"number": 1}}, run_id, wait=0)
    api.engine.sync.create_schedule(Schedule("nightly", report(1), when=Every(timedelta(days=1))))
    fuzzer = Fuzzer(seed)
    statuses: dict[int, int] = {}
    for _ in range(sized(300, 2_000)):
        method, url, content, headers = fuzzer.request()
        response = await api.send(method, url, content=content, headers=headers)
        assert response.status_code < 500, (method, url, content, headers, response.text)
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1

    assert {200, 400, 404} <= set(statuses), statuses
