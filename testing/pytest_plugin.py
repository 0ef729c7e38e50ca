"""The pytest plugin: fixtures, options and markers. Registered by the distribution; `-p no:holdfast` turns it off.

It is imported whenever pytest starts, so what it needs is imported by the fixtures.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.hosts.sync_handles import SyncRunHandle
    from holdfast.kernel.authoring.calls import Call
    from holdfast.testing.effects import Effects
    from holdfast.testing.simulating import Simulation
    from holdfast.testing.world import World

R = TypeVar("R")

_WRITTEN: Final = pytest.StashKey[list[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("holdfast", "durable workflows")
    group.addoption(
        "--holdfast-update",
        action="store_true",
        help="write the golden histories anew instead of comparing with them",
    )
    group.addoption(
        "--holdfast-seeds",
        type=int,
        metavar="N",
        help="how many seeds simulations try, whatever tests and their marks say",
    )
    group.addoption(
        "--holdfast-seed",
        type=int,
        metavar="SEED",
        help="the only seed that simulations try: to see a failure again",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the mark, and have a place for what is written."""
    config.addinivalue_line("markers", "holdfast_seeds(n): how many seeds simulations of this test try")
    config.stash[_WRITTEN] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell which golden histories were written."""
    for path in config.stash[_WRITTEN]:
        terminalreporter.write_line(f"golden history written: {path}")


@pytest.fixture
def world() -> "Iterator[World]":
    """An engine in memory whose time passes at once: a `holdfast.testing.World`."""
    from holdfast.testing.world import World

    with World() as world:
        yield world


class GoldenHistory:
    """Compares histories of runs with files that lie beside the test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._unnamed = 0

    def __call__(self, run: "SyncRunHandle[Any]", /, name: str = "") -> None:
        """Compare what has happened to a run with its golden file; with `--holdfast-update`, write that.

        Args:
            run: The run, which should have ended.
            name: Tells the histories of one test apart. The file is `golden/<module>/<test>[-<name>].json`.
        """
        __tracebackhide__ = True
        from holdfast.testing.histories import check_history, recorded

        if not name:
            if self._unnamed:
                pytest.fail("a second golden history of a test needs a name", pytrace=False)
            self._unnamed += 1
        config = self._request.config
        path = self._path(name)
        try:
            written = check_history(recorded(run), path, update=bool(config.getoption("--holdfast-update")))
        except AssertionError as difference:
            pytest.fail(str(difference), pytrace=False)
        if written:
            config.stash[_WRITTEN].append(path)

    def _path(self, name: str) -> Path:
        test = re.sub(r"[^\w.-]+", "_", f"{self._request.node.name}{f'-{name}' if name else ''}").strip("_")
        module = self._request.path
        return module.parent / "golden" / module.stem / f"{test}.json"


@pytest.fixture
def golden_history(request: pytest.FixtureRequest) -> GoldenHistory:
    """Compare what has happened to a run with a file beside the test: `golden_history(run)`."""
    return GoldenHistory(request)


class Simulate:
    """`holdfast.testing.simulate`, with as many seeds as the test, its mark or the command line says."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

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
    ) -> "Simulation[R]":
        """Simulate a call: see `holdfast.testing.simulate`.

        `--holdfast-seed` and `--holdfast-seeds` of the command line count for more than `seeds`, which counts for more
        than the mark `holdfast_seeds`.
        """
        __tracebackhide__ = True
        from holdfast.testing.simulating import SimulationFailedError, simulate

        try:
            return simulate(
                call, seeds=self._seeds(seeds), effects=effects, before=before, after=after, same=same
            )
        except SimulationFailedError as failed:
            # The traceback would be that of the simulator.
            raise failed.with_traceback(None) from None

    def _seeds(self, given: "int | Iterable[int] | None") -> "int | Iterable[int]":
        from holdfast.testing.simulating import SEEDS

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
            raise ValueError("the mark holdfast_seeds takes a number: @pytest.mark.holdfast_seeds(200)")
        marked: int | Iterable[int] = mark.args[0]
        return marked


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Simulate:
    """Run a workflow under crashes, once a seed: `simulate(call, effects=...)`. See `holdfast.testing.simulate`."""
    return Simulate(request)
