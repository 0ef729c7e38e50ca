"""A server of the shop in docs/examples/live_demo, with runs in every state."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from docs.examples.live_demo.seed import seed, seed_blocked
from docs.examples.live_demo.shop import SCHEDULES, WORKFLOWS, invoice

from holdfast import Engine, Topic, Trigger, Worker
from holdfast.hosts.http.operations import Operation
from holdfast.hosts.http.pages.table import PAGE_OPERATIONS
from holdfast.http import asgi_app
from tests.integration.http.live import served

NAMESPACE: Final = "default"
RUN_IDS: Final = ("order-1", "order-2", "refund-1", "price-1", "invoice-1")
"""Completed, failed, waiting for a message, blocked, and waiting for its next attempt."""
NAMES: Final = {
    "namespaces": (NAMESPACE,),
    "runs": RUN_IDS,
    "workflows": ("order", "refund"),
    "schedules": ("traffic", "nightly"),
    "triggers": ("invoices",),
    "queues": ("default",),
    "limits": ("queue:default",),
}
"""The names of what is there, by the segment of a path before them."""
OF_RUN: Final = {"stages": "pack", "steps": "0", "items": "pack", "signals": "approval"}
"""The names of parts of `order-1`."""
PAGES: Final = [
    one
    for one in PAGE_OPERATIONS
    if one.is_page and one.name not in ("page.sign_in_provider", "page.sign_in_return")
]
"""The pages of a server without single sign-on: two addresses lead to the provider and back."""
QUERIES: Final = {
    "page.bulk": ("?action=cancel&workflow=order",),
    "page.runs": ("", "?status=failed&limit=2", "?workflow=none"),
    "page.queues": ("", "?set=run:acme"),
    "page.run": (
        "",
        *(
            f"?tab={tab}"
            for tab in (
                "timeline",
                "graph",
                "steps",
                "history",
                "logs",
                "values",
                "messages",
                "children",
                "raw",
            )
        ),
    ),
}
"""The queries of pages with several faces. Those of a run are those of the first run."""


def mounted(app: Any, mount: str) -> Any:
    """Return an application behind a proxy that serves it below a path."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": mount}, receive, send)

    return call if mount else app


@contextmanager
def shop(store: str) -> Generator[Engine]:
    """Fill a store, with a worker, until the runs are in their states."""
    seed_blocked(store)
    seed(store)
    engine = Engine.open(store, workflows=WORKFLOWS, schedules=SCHEDULES)
    with engine.sync as sync, Worker(engine):
        sync.triggers.put(Trigger("invoices", Topic("orders", str), invoice))
        sync.publish(Topic("news", str)("the shop is open"))
        wanted = {"order-1": "completed", "order-2": "failed", "price-1": "blocked"}
        wait_until(lambda: wanted.items() <= {one.id: one.status.value for one in sync.runs()}.items())
        yield engine


@contextmanager
def served_shop(engine: Engine, mount: str = "") -> Generator[str]:
    """Serve an engine, and provide the address of the server with its mount."""
    with served(mounted(asgi_app(engine), mount)) as address:
        yield f"{address.replace('127.0.0.1', 'localhost')}{mount}"


def paths_of(operation: Operation) -> Iterator[str]:
    """Yield the paths of a page for what is in the shop. LookupError if a part of it has no name there."""
    found = [""]
    before = ""
    for segment in operation.path.split("/")[1:]:
        names: tuple[str, ...] = (segment,)
        if segment.startswith("{"):
            if before not in NAMES and before not in OF_RUN:
                raise LookupError(f"{operation.path}: add a name of {segment} after {before!r} to {__name__}")
            names = NAMES.get(before) or (OF_RUN[before],)
        found = [f"{path}/{name}" for path in found for name in names]
        before = segment
    first, *others = found
    yield from (f"{first}{query}" for query in QUERIES.get(operation.name, ("",)))
    yield from others


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for what another thread does. AssertionError if it does not come."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it has not happened in time"
        time.sleep(0.05)
