"""A request for each operation of the table, and the store as rows, to be compared."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from holdfast.hosts.http.bulk_operations import ActionName, digest_of
from holdfast.hosts.http.operations import Operation
from holdfast.hosts.http.run_reads import RunConditions
from tests.integration.http.api import NAMESPACE

RUN_ID: Final = "one"
PATHS: Final = {
    "namespace": NAMESPACE,
    "run_id": RUN_ID,
    "channel": "approval",
    "name": "queue:fast",
    "key": "k",
    "code": "forbidden",
    "label": "victim",
    "worker": "none",
    "token": "none",
    "topic": "orders",
    "completion": "bm9uZQ.0123456789abcdef0123456789abcdef",
    "number": "1",
}
FILTER: Final = {"workflow": "report"}
CONDITIONS: Final = RunConditions(workflow="report")
ACTIONS: Final[tuple[ActionName, ...]] = ("cancel", "terminate", "pause", "resume", "rerun", "remove")
BODIES: Final[Mapping[str, object]] = {
    "run.start": {"workflow": "report", "input": 1},
    "run.start_all": {"calls": [{"workflow": "report", "input": 1}]},
    "run.update_with_start": {"workflow": "approved", "input": {"order": {"number": 1}}, "id": "cart"},
    "run.annotate": {"values": {"a": 1}},
    "run.wake": {"stage": "reported"},
    "schedule.backfill": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    "limit.set": {"paused": False},
    "browser_session.create": {"credential": "hf_none"},
    "key.create": {"label": "other", "scopes": ["read"], "namespaces": [NAMESPACE]},
    "namespace.create": {"name": "other"},
    "completion.complete": {"value": 1},
    "completion.fail": {"message": "no longer needed"},
    "worker.register": {"steps": ["shout"], "queues": ["tools"]},
    "task.upload": {"sha256": "0" * 64, "size": 1},
    "sink.acknowledge": {"cursor": "k.1"},
    "topic.publish": {"message": {"number": 7}},
    "task.settle": {"outcomes": [{"token": "none", "complete": {"output": 1}}]},
    "task.fail": {"error": {"code": "busy", "message": "later"}},
    "run.preview_bulk": {"action": "cancel", "filter": FILTER},
    **{
        f"run.{one}_all": {"filter": FILTER, "cursor": f"{digest_of(one, CONDITIONS)}.{10**17}"}
        for one in ACTIONS
    },
    "command.dispatch": {"commands": [{"type": "run.cancel", "run_id": RUN_ID}]},
}
"""Bodies of operations whose fields are not all optional."""


def path_of(operation: Operation) -> str:
    """Return the path of a sample request."""
    return "/".join(PATHS[one[1:-1]] if one.startswith("{") else one for one in operation.path.split("/"))


def rows_of(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of a SQLite store by table, but when keys were last used: servers note that after the answer."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as store:
        names = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found: dict[str, list[tuple[Any, ...]]] = {}
        for name in names:
            columns = [row[1] for row in store.execute(f"PRAGMA table_info({name})") if row[1] != "used_at"]
            rows = store.execute(f"SELECT {', '.join(columns)} FROM {name}")  # names of the schema
            found[name] = sorted(rows, key=repr)
        return found
