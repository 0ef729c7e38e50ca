"""The entry points of the processes that chaos tests kill: one function for each role."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from holdfast import ServerlessHost, Worker
from holdfast.hosts.serverless import host as serverless
from tests.chaos.execution_log import Book, keep_book
from tests.chaos.execution_tables import Ledger
from tests.chaos.faults import expect, fault_from, striking_engine
from tests.chaos.programs import CHAIN, WORKFLOWS
from tests.chaos.wrong_clock import WrongClock


def live(plan: Mapping[str, Any]) -> int:
    """Carry out a plan (JSON data), and return the exit code."""
    folder = Path(plan["folder"])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    kept = Book(folder) if plan["ledger"] is None else Ledger(folder, plan["ledger"])
    keep_book(kept, work_seconds=plan["work_seconds"])
    expect([fault_from(fault) for fault in plan["faults"]])
    said = _LIVES[plan["kind"]](plan)
    _say(folder / f"{plan['name']}.said", said)
    return 0


def _worker(plan: Mapping[str, Any]) -> object:
    options = dict(plan["options"])
    clock = WrongClock(
        **{name: options.pop(name) for name in ("wrong_by", "jumps", "every") if name in options}
    )
    engine = striking_engine(plan["url"], [WORKFLOWS[name] for name in plan["workflows"]], clock)
    if "only_queues" in options:
        options["only_queues"] = tuple(options["only_queues"])
    worker = Worker(engine, **options)
    worker.run()
    stats = {**attrs.asdict(worker.stats()), "clock_set": clock.times_set}
    engine.core.close()
    return stats


def _function(plan: Mapping[str, Any]) -> object:
    """One invocation of a serverless function: it processes available jobs."""
    serverless.MARGIN = 0.5  # type: ignore[misc]  # nobody waits 10 s
    engine = striking_engine(plan["url"], [WORKFLOWS[name] for name in plan["workflows"]])
    host = ServerlessHost(engine, time_limit=0.5)
    done = host.process_available_jobs(max_jobs=100)
    engine.core.close()
    return attrs.asdict(done)


def _starter(plan: Mapping[str, Any]) -> object:
    """Start runs one after the other, and record each acknowledged one."""
    folder = Path(plan["folder"])
    with striking_engine(plan["url"], list(WORKFLOWS.values())).sync as engine:
        for number in range(plan["options"]["runs"]):
            run = f"started-{number}"
            engine.start(CHAIN(number), id=run, idempotency_key=f"key-{number}")
            with (folder / "acknowledged").open("a") as file:
                file.write(f"{run}\n")
    return {}


def _say(path: Path, said: object) -> None:
    """Write the final data of the process atomically."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(said, default=str))
    part.rename(path)


_LIVES: Final[Mapping[str, Callable[[Mapping[str, Any]], object]]] = {
    "worker": _worker,
    "function": _function,
    "starter": _starter,
}
