"""Starts the runs that the shop has besides its orders."""

import time

from docs.examples.live_demo.shop import (
    WORKFLOWS,
    Order,
    export,
    invoice,
    newsletter,
    orders,
    price_changed,
    read_price,
    refund,
    reindex,
)

from holdfast import Engine, Worker, workflow


@workflow(name="watch_price")
async def watch_price_before(article: str) -> int:
    """The old code of `watch_price`."""
    return await read_price(article) + await price_changed.receive()


def seed(store: str) -> None:
    """Start the runs. Those that have ended since the last time are run again, the others stay."""
    calls = {
        "order-1": orders(Order("ann", ["tea", "vase"])),
        "order-2": orders(Order("bob", ["cup", "unicorn"])),
        "refund-1": refund(1_999),
        "invoice-1": invoice("order-1"),
        **{f"letter-{number}": newsletter(f"letter {number}") for number in range(1, 6)},  # one in a minute
        **{f"export-{month}": export(month) for month in ("january", "february", "march")},  # one at a time
    }
    with Engine.open(store, workflows=WORKFLOWS).sync as engine:
        for name, call in calls.items():
            attributes = {"customer": "ann"} if name.startswith("export") else {}
            engine.start(call, id=name, attributes=attributes, if_active="return", if_ended="rerun")
        for draft in ("first draft", "second draft", "last draft"):  # one run, which gets the last one
            engine.start(reindex(draft), attributes={"document": "terms"})


def seed_blocked(store: str) -> None:
    """Start a run with the old code, and stop before it ends. The new code does not fit its history."""
    with Engine.open(store, workflows=[watch_price_before]).sync as engine:
        run = engine.start(watch_price_before("lamp"), id="price-1", if_exists="return")
        if len(run.history()) > 1:
            return  # it was there
        with Worker(engine):
            while all(row.type != "step.completed" for row in run.history()):
                time.sleep(0.02)
        run.signal(price_changed(7))
