"""Sends generated requests to a server that runs, with Schemathesis: valid ones, invalid ones, and chains of both.

`python -m tests.fuzz_server --cases 10000` starts `holdfast serve --worker` on a new SQLite store with runs in it, and
runs all checks of Schemathesis but two. It exits with 1 if a check fails, the server logs an error or stops, its memory
grows too much, or too few operations were carried out.

- `ignored_auth` expects 401 for each request without a valid key. This server answers 429 after ten in a minute; the
  matrix of rights (`tests/integration/http_auth`) sends such requests to every operation.
- `positive_data_acceptance` expects that a request which fits the schema is carried out. A JSON schema can't say that
  one instant lies after another, or that a run exists.

Schemathesis finds the names of runs, schedules and keys in the answers of lists. So the operations that would revoke
its own key, or remove the whole namespace, are left out.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
import httpx

from holdfast import Cron, Engine, Schedule, Topic, Trigger, workflow
from tests.integration.http.programs import (
    WORKFLOWS,
    Order,
    approved,
    broken,
    game,
    order,
    report,
    retried,
)

UNDECIDED: Final = "ignored_auth,positive_data_acceptance"
"""Checks that are left out."""
LEFT_OUT: Final = r"^(key\.(revoke|rotate)|namespace\.delete)$"
"""Operations by their ids. They would leave nothing to do for the others."""
PROGRAM: Final = """
from holdfast import Engine
from tests.fuzz_server import echo
from tests.integration.http.programs import WORKFLOWS

engine = Engine.open({url!r}, namespace="shop", workflows=(*WORKFLOWS, echo))
"""
KNOWN: Final = {
    "path.run_id": [
        f"{name}-{number}" for name in ("approved", "order", "report", "game") for number in range(5)
    ],
    "path.name": [
        "nightly-1",
        "nightly-2",
        "ship-1",
        "ship-2",
        "warehouse-1",
        "warehouse-2",
        "state",
        "all",
        "default",
    ],
    "path.topic": ["orders"],
    "body.workflow": ["echo"],
}
"""Values that exist in the store, by the parameters that often have them."""
KNOWN_SHARE: Final = 0.7
PHASES: Final = {"coverage,fuzzing": 30, "stateful": 300}
"""How many generated requests each operation gets, beside those for the limits of its schema, and how many chains of
requests there are, by the phases of Schemathesis."""
GROWTH_MAX: Final = 200 * 2**20
"""How many bytes the server may grow by. It keeps durable functions in memory, and pages of the store."""
CARRIED_OUT_MIN: Final = 50
"""How many of the operations must have been carried out at least once."""
SECONDS_MAX: Final = 60.0
_ANSWER: Final = re.compile(r" INFO +([a-z_]+\.[a-z_]+) (?:by \S+ )?([0-9]{3}) in ")
_IS_ERROR: Final = re.compile(r" ERROR +(?!run | )|Traceback|Exception")
"""Runs may fail; the server may not."""
_SCRIPTS: Final = Path(sys.executable).parent
"""Where the commands of the packages are."""


@workflow
async def echo(value: object = None) -> object:
    """Take any input."""
    return value


@attrs.define
class Outcome:
    """The outcome of the runs of Schemathesis.

    Attributes:
        cases: How many requests were sent.
        phases: Which kinds of requests there were.
        failures: What failed, with how often.
        stopped: Whether the server has stopped.
        errors: The lines of its log that report errors.
        answers: How often each operation was answered with each status.
        growth: By how many bytes its memory has grown.
    """

    cases: int = 0
    phases: set[str] = attrs.Factory(set[str])
    failures: Counter[str] = attrs.Factory(Counter[str])
    stopped: bool = False
    errors: list[str] = attrs.Factory(list[str])
    answers: Counter[tuple[str, int]] = attrs.Factory(Counter[tuple[str, int]])
    growth: int = 0

    @property
    def carried_out(self) -> set[str]:
        """The operations that were carried out at least once."""
        return {name for name, status in self.answers if status < 400}

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return (
            not (self.failures or self.stopped or self.errors)
            and self.growth < GROWTH_MAX
            and len(self.carried_out) >= CARRIED_OUT_MIN
        )

    def text(self) -> str:
        """Return it for people."""
        lines = [f"{self.cases:,} requests ({', '.join(sorted(self.phases))})"]
        lines += [f"FAILED {count} times: {what}" for what, count in self.failures.most_common()]
        lines += ["the server has stopped"] if self.stopped else []
        lines += [f"the server has logged: {line}" for line in self.errors[:10]]
        statuses = Counter[int]()
        for (_, status), count in self.answers.items():
            statuses[status] += count
        lines.append(
            "answers: " + ", ".join(f"{count:,} of {status}" for status, count in sorted(statuses.items()))
        )
        lines.append(f"operations that were carried out: {len(self.carried_out)}")
        lines.append(f"memory of the server: {self.growth / 2**20:+.0f} MB")
        return "\n".join(lines)


def fuzz(folder: Path, *, cases: int, seed: int, url: str = "sqlite:///fuzz.db") -> Outcome:
    """Send at least so many requests to a server on an empty store. Its files are in a folder."""
    (folder / "fuzzed.py").write_text(PROGRAM.format(url=url))
    (folder / "schemathesis.toml").write_text(_configuration())
    outcome = Outcome()
    _holdfast(folder, "db", "upgrade", url)
    _fill(url.replace("///fuzz.db", f"///{folder / 'fuzz.db'}"))
    with _server(folder) as (process, address):
        key = json.loads(_holdfast(folder, "key", "create", "fuzzed:engine", "fuzz", "--admin", "--json"))[
            "text"
        ]
        memory = _memory(process)
        while outcome.cases < cases and not outcome.stopped:
            for phases, examples in PHASES.items():
                _add(outcome, _schemathesis(folder, address, key, phases, examples, seed))
            outcome.stopped = process.poll() is not None
            seed += 1
        if not outcome.stopped:
            outcome.growth = _memory(process) - memory
    log = (folder / "server.log").read_text()
    outcome.errors = [line for line in log.splitlines() if _IS_ERROR.search(line)]
    outcome.answers.update((name, int(status)) for name, status in _ANSWER.findall(log))
    return outcome


def _fill(url: str) -> None:
    """Store something of each kind, so that there is something to read, change and remove."""
    orders = Topic("orders", Order)
    with Engine.open(url, namespace="shop", workflows=WORKFLOWS).sync as engine:
        for number in range(5):
            engine.start(approved(Order(number)), id=f"approved-{number}")
            engine.start(order(Order(number)), id=f"order-{number}")
            engine.start(broken("x"), id=f"broken-{number}")
            engine.start(report(number), id=f"report-{number}")
            engine.start(retried(number), id=f"retried-{number}")
            engine.start(game(), id=f"game-{number}")
            engine.create_schedule(Schedule(f"nightly-{number}", report(1), when=Cron("0 3 * * *")))
            engine.triggers.put(Trigger(f"ship-{number}", orders, order))
            engine.publish(orders(Order(number)))
            engine.register_sink(f"warehouse-{number}")


def _configuration() -> str:
    """Return the configuration file of Schemathesis."""
    lines = ["[parameters]", 'namespace = "shop"']
    for number, path in enumerate(KNOWN):
        lines.append(f'"{path}" = {{ dictionary = "known{number}", probability = {KNOWN_SHARE} }}')
    for number, values in enumerate(KNOWN.values()):
        lines += [f"[dictionaries.known{number}]", f"values = {json.dumps(values)}"]
    return "\n".join(lines)


def _add(outcome: Outcome, report: dict[str, Any]) -> None:
    outcome.cases += report["test_cases"]["generated"]
    outcome.phases |= {name for name, phase in report["phases"].items() if phase["status"] != "skip"}
    for failure in report["failures"]:
        for operation in failure["operations"]:
            outcome.failures[f"{failure['code']} {failure['title']}: {operation}"] += 1
    for error in report["errors"]:
        outcome.failures[json.dumps(error)[:500]] += 1


def _schemathesis(
    folder: Path, address: str, key: str, phases: str, examples: int, seed: int
) -> dict[str, Any]:
    options = {
        "header": f"Authorization: Bearer {key}",
        "phases": phases,
        "max-examples": examples,
        "seed": seed,
        "checks": "all",
        "exclude-checks": UNDECIDED,
        "exclude-operation-id-regex": LEFT_OUT,
        "request-timeout": SECONDS_MAX,
        "report": "json",
        "report-json-path": "report.json",
    }
    command = [str(_SCRIPTS / "schemathesis"), "run", f"{address}/openapi.json"]
    command += ["--continue-on-failure", "--no-shrink"]
    command += [f"--{name}={value}" for name, value in options.items()]
    (folder / "report.json").unlink(missing_ok=True)
    with (folder / f"schemathesis-{phases}-{seed}.log").open("w") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@contextmanager
def _server(folder: Path) -> "Generator[tuple[subprocess.Popen[bytes], str]]":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = _command("serve", "fuzzed:engine", "--worker", "--port", str(port))
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=_environment(folder), stdout=log, stderr=log) as process,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_ready(address)
            yield process, address
        finally:
            process.send_signal(signal.SIGTERM)


def _memory(process: "subprocess.Popen[bytes]") -> int:
    """Return how many bytes of memory a process has."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _wait_until_ready(address: str) -> None:
    until = time.monotonic() + SECONDS_MAX
    while True:
        try:
            if httpx.get(f"{address}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > until:
            raise TimeoutError("the server is not ready; see server.log")
        time.sleep(0.1)


def _holdfast(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        _command(*arguments), cwd=folder, env=_environment(folder), check=True, capture_output=True, text=True
    ).stdout


def _command(*arguments: str) -> list[str]:
    return [str(_SCRIPTS / "holdfast"), *arguments]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[1])])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and print the outcome."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_server", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="how many requests at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--url", default="sqlite:///fuzz.db", help="an empty store")
    parser.add_argument("--folder", type=Path, help="where the store and the logs stay")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = fuzz(folder, cases=options.cases, seed=options.seed, url=options.url)
    print(outcome.text())
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
