"""The pytest plugin: fixtures, options and markers. The distribution registers it; `-p no:holdfast` turns it off.

pytest imports it at every start, so its fixtures import what they need.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from holdfast.hosts.client.sync_run_handle import SyncRunHandle
    from holdfast.hosts.functions.replay_check import ReplayResult
    from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
    from holdfast.testing.effects import Effects
    from holdfast.testing.stubs import Stubs
    from holdfast.testing.workflow_simulation import Simulation
    from holdfast.testing.world import World

R = TypeVar("R")

_WRITTEN: Final = pytest.StashKey[list[Path]]()
_WITHOUT_EFFECTS: Final = ("holdfast_effects", "none")
"""A user property of test reports, which also reaches the summary from processes of pytest-xdist."""
_ORDINARY: Final = re.compile(r"[\w.-]+(\[[\w.-]+(?<!_)\])?")
"""Names of tests whose golden files need no digest to differ."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command line options."""
    group = parser.getgroup("holdfast", "durable workflows")
    group.addoption(
        "--holdfast-update",
        action="store_true",
        help="write the golden histories instead of comparing with them",
    )
    group.addoption(
        "--holdfast-seeds",
        type=int,
        metavar="N",
        help="number of seeds that each simulation tries; overrides tests and marks",
    )
    group.addoption(
        "--holdfast-seed",
        type=int,
        metavar="SEED",
        help="the only seed that simulations try, to reproduce a failure",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and the list of written files."""
    config.addinivalue_line("markers", "holdfast_seeds(n): number of seeds that simulations of this test try")
    config.stash[_WRITTEN] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the golden histories that were written, and the simulations that recorded no effects."""
    for path in config.stash[_WRITTEN]:
        terminalreporter.write_line(f"golden history written: {path}")
    for report in terminalreporter.getreports("passed"):
        if _WITHOUT_EFFECTS in report.user_properties:
            terminalreporter.write_line(
                f"{report.nodeid} simulated without effects: duplicate effects are not detected (pass"
                " effects=Effects())"
            )


@pytest.fixture
def world() -> "Iterator[World]":
    """An engine in memory that skips time: a `holdfast.testing.World`."""
    from holdfast.testing.world import World

    with World() as world:
        yield world


class GoldenHistory:
    """Compares histories of runs with golden files beside the test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._unnamed = 0

    def __call__(self, run: "SyncRunHandle[Any]", /, name: str = "") -> None:
        """Compare the history of a run with its golden file; with `--holdfast-update`, write the file.

        Args:
            run: The run, which should have ended.
            name: Distinguishes several histories of one test. The file is `golden/<module>/<test>[-<name>].json`.
        """
        __tracebackhide__ = True
        from holdfast.testing.histories import check_history, recorded

        if not name:
            if self._unnamed:
                pytest.fail("the second golden history of a test needs a name", pytrace=False)
            self._unnamed += 1
        config = self._request.config
        path = _golden_path(self._request, name, "json")
        try:
            written = check_history(recorded(run), path, update=bool(config.getoption("--holdfast-update")))
        except AssertionError as difference:
            pytest.fail(str(difference), pytrace=False)
        if written:
            config.stash[_WRITTEN].append(path)


@pytest.fixture
def golden_history(request: pytest.FixtureRequest) -> GoldenHistory:
    """Compare the history of a run with a file beside the test: `golden_history(run)`."""
    return GoldenHistory(request)


class GoldenReplay:
    """Replays histories that older code has recorded in files beside the test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def __call__(
        self,
        record: "Callable[[], SyncRunHandle[Any]]",
        /,
        *workflows: "WorkflowDefinition[Any]",
        name: str = "",
    ) -> "ReplayResult":
        """Replay the history in a file with the present code; with `--holdfast-update`, record it if it is missing.

        An existing file is never overwritten: runs that the old code has started still exist.

        Args:
            record: Starts a run and returns its handle, ended or not. Called only if the file is missing.
            workflows: The durable functions. The file names the one to replay.
            name: Distinguishes several histories of one test, for example by release. The file is
                `golden/<module>/<test>[-<name>].history.json`.

        Returns:
            The outcome of the replay: the function ends as recorded, or waits. If its calls differ, the test fails.
        """
        __tracebackhide__ = True
        from holdfast.hosts.functions.replay_check import replay
        from holdfast.ports.errors import HoldfastError

        config = self._request.config
        path = _golden_path(self._request, name, "history.json")
        if not path.exists():
            if not config.getoption("--holdfast-update"):
                pytest.fail(
                    f"golden history {path} does not exist; pytest --holdfast-update records it",
                    pytrace=False,
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(record().export_history().to_json(), encoding="utf-8", newline="\n")
            config.stash[_WRITTEN].append(path)
        try:
            return replay(path, *workflows)
        except HoldfastError as error:
            pytest.fail(f"{path}: {error}", pytrace=False)


@pytest.fixture
def golden_replay(request: pytest.FixtureRequest) -> GoldenReplay:
    """Replay a recorded history beside the test: `golden_replay(record, my_workflow)`."""
    return GoldenReplay(request)


def _golden_path(request: pytest.FixtureRequest, name: str, suffix: str) -> Path:
    test: str = request.node.name
    file = re.sub(r"[^\w.-]+", "_", f"{test}{f'-{name}' if name else ''}").strip("_")
    if not _ORDINARY.fullmatch(test):
        # Other characters of a parameter become `_`, so that "a/b" and "a b" would share a file.
        file += f"-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
    module = request.path
    return module.parent / "golden" / module.stem / f"{file}.{suffix}"


class Simulate:
    """`holdfast.testing.simulate` with the number of seeds from the test, its mark or the command line."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    @overload
    def __call__(
        self,
        call: "Call[R]",
        /,
        *,
        seeds: "int | Iterable[int] | None" = None,
        effects: "Effects | None" = None,
        before: "Callable[[], object] | None" = None,
        after: "Callable[[], object] | None" = None,
        same: "Callable[[R], object] | None" = None,
        stubs: "Callable[[Stubs], object] | None" = None,
        meanwhile: "Mapping[timedelta, Callable[[SyncRunHandle[R]], object]] | None" = None,
    ) -> "Simulation[R]": ...
    @overload
    def __call__(
        self,
        calls: "Sequence[Call[R]]",
        /,
        *,
        seeds: "int | Iterable[int] | None" = None,
        effects: "Effects | None" = None,
        before: "Callable[[], object] | None" = None,
        after: "Callable[[], object] | None" = None,
        same: "Callable[[R], object] | None" = None,
        stubs: "Callable[[Stubs], object] | None" = None,
        meanwhile: "Mapping[timedelta, Callable[[Sequence[SyncRunHandle[R]]], object]] | None" = None,
    ) -> "Simulation[Sequence[R]]": ...
    def __call__(
        self, calls: Any, /, *, seeds: "int | Iterable[int] | None" = None, **options: Any
    ) -> "Simulation[Any]":
        """Simulate one call or several: see `holdfast.testing.simulate`.

        The options `--holdfast-seed` and `--holdfast-seeds` override `seeds`, which overrides the mark
        `holdfast_seeds`. The summary of pytest lists the simulations that recorded no effects.
        """
        __tracebackhide__ = True
        from holdfast.testing.workflow_simulation import SimulationFailedError, simulate

        try:
            simulation = simulate(calls, seeds=self._seeds(seeds), **options)
        except SimulationFailedError as failed:
            # The traceback would only show the simulator.
            raise failed.with_traceback(None) from None
        if not simulation.effects:
            properties: list[tuple[str, object]] = self._request.node.user_properties
            if _WITHOUT_EFFECTS not in properties:
                properties.append(_WITHOUT_EFFECTS)
        return simulation

    def _seeds(self, given: "int | Iterable[int] | None") -> "int | Iterable[int]":
        from holdfast.testing.workflow_simulation import SEEDS

        config = self._request.config
        only: int | None = config.getoption("--holdfast-seed")
        many: int | None = config.getoption("--holdfast-seeds")
        if only is not None:
            return (only,)
        if many is not None:
            return many
        mark = self._request.node.get_closest_marker("holdfast_seeds")
        if given is not None or mark is None:
            return SEEDS if given is None else given
        if not mark.args:
            raise ValueError("the mark holdfast_seeds takes an integer: @pytest.mark.holdfast_seeds(200)")
        marked: int | Iterable[int] = mark.args[0]
        return marked


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Simulate:
    """Run a workflow under crashes, once per seed: `simulate(call, effects=...)`. See `holdfast.testing.simulate`."""
    return Simulate(request)
