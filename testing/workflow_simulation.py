"""Simulation testing: runs a workflow under crashes, duplicates, delays and clock jumps, once per seed."""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final, Generic, overload

import attrs
from typing_extensions import TypeVar, override

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.ports.errors import InvalidArgumentError
from holdfast.testing.effects import Effects
from holdfast.testing.simulation.faults import (
    BODY,
    FaultKind,
    Faults,
    FaultSchedule,
    FiredFault,
    draw_strengths,
)
from holdfast.testing.simulation.fibers import START, HostError
from holdfast.testing.simulation.seeds import without_garbage_collection
from holdfast.testing.stubs import Stubs
from holdfast.testing.trials import Meanwhile, SimulatedCluster, SimulationInput, Trial
from holdfast.testing.verdicts import is_excused, problems

R = TypeVar("R")
Out = TypeVar("Out", covariant=True)

SEEDS: Final = 100
"""Default number of seeds."""

_OTHERS: Final = (
    FaultKind.SLOW,
    FaultKind.FAILS_BEFORE,
    FaultKind.LOST_ANSWER,
    FaultKind.RUNS_AGAIN,
    FaultKind.HINT_LOST,
    FaultKind.HINT_REPEATED,
    FaultKind.HINT_LATE,
    FaultKind.CLOCK_JUMP,
)
"""Faults besides lost workers that every workflow must tolerate."""

_LEASE: Final = 60.0
_YEAR: Final = 366 * 86_400.0
"""Maximum duration of a run without faults, and its lease, in seconds."""

_LATER: Final = 30 * 86_400.0
"""Additional time limit with faults, beyond twice the duration without them, in seconds."""
_LOSSES: Final = (1, 1, 1, 2, 2, 3)
"""Possible numbers of lost workers under one seed; repeated ones are more likely."""

_LOST_BY: Final = (FaultKind.CRASH, FaultKind.CRASH, FaultKind.CRASH, FaultKind.PAUSE, FaultKind.FREEZE)
_LINES_SHOWN: Final = 60


class SimulationFailedError(AssertionError):
    """A workflow did not end as it does without faults. The message has the seed, the problems and the trace.

    Attributes:
        seed: The seed.
        problems: The problems, in words.
    """

    def __init__(self, seed: int, problems: Sequence[str], tried: int, trial: Trial) -> None:
        self.seed = seed
        self.problems = tuple(problems)
        title = f"seed {seed} failed, the last of {tried} tried; expected is the outcome without faults:"
        lines = trial.lines if len(trial.lines) <= _LINES_SHOWN else ("...", *trial.lines[-_LINES_SHOWN:])
        super().__init__(
            "\n".join(
                (
                    title if tried else "the workflow failed without faults:",
                    *(f"- {problem}" for problem in problems),
                    "Trace:",
                    *(f"  {_dated(line)}" for line in lines),
                    f"Reproduce it with simulate(..., seeds=[{seed}]) or pytest --holdfast-seed {seed}",
                )
            )
        )


@attrs.frozen(kw_only=True)
class Simulation(Generic[Out]):
    """The outcome of a simulation without problems.

    Attributes:
        seeds: Number of seeds.
        fired: Number of faults by kind, over all seeds.
        excused: Number of seeds in which faults used up attempts or time of a run, and so ended it.
        seconds: Duration in virtual time without faults.
        effects: The number of times that each effect happens without faults. If empty, duplicates were not checked.
    """

    seeds: int
    fired: Mapping[str, int]
    excused: int
    seconds: float
    effects: Mapping[str, int]
    _result_of: Callable[[], Out] = attrs.field(alias="result_of", repr=False)

    @property
    def result(self) -> Out:
        """The run's result; of several runs, the list of results. Raises RunFailedError if a run fails."""
        return self._result_of()


def _wanted(seeds: int | Iterable[int]) -> Sequence[int]:
    is_number = isinstance(seeds, int) and not isinstance(seeds, bool)
    if not is_number and (isinstance(seeds, bool | str) or not isinstance(seeds, Iterable)):
        raise InvalidArgumentError(
            "seeds", f"seeds is {seeds!r}; it must be a number of seeds, as 100, or a list of seeds, as [7]"
        )
    wanted = tuple(range(1, seeds + 1) if isinstance(seeds, int) else seeds)
    if any(not isinstance(seed, int) for seed in wanted):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError("seeds", f"seeds is {seeds!r}; each seed must be an int")
    if not wanted:
        raise InvalidArgumentError("seeds", f"seeds is {seeds!r}; there must be at least one seed")
    return wanted


@overload
def simulate(
    call: Call[R],
    /,
    *,
    seeds: int | Iterable[int] = SEEDS,
    effects: Effects | None = None,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
    same: Callable[[R], object] | None = None,
    stubs: Callable[[Stubs], object] | None = None,
    workflows: Sequence[WorkflowDefinition[Any]] = (),
    meanwhile: Mapping[timedelta, Callable[[SyncRunHandle[R]], object]] | None = None,
) -> Simulation[R]: ...
@overload
def simulate(
    calls: Sequence[Call[R]],
    /,
    *,
    seeds: int | Iterable[int] = SEEDS,
    effects: Effects | None = None,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
    same: Callable[[R], object] | None = None,
    stubs: Callable[[Stubs], object] | None = None,
    workflows: Sequence[WorkflowDefinition[Any]] = (),
    meanwhile: Mapping[timedelta, Callable[[Sequence[SyncRunHandle[R]]], object]] | None = None,
) -> Simulation[Sequence[R]]: ...
def simulate(
    calls: Call[Any] | Sequence[Call[Any]],
    /,
    *,
    seeds: int | Iterable[int] = SEEDS,
    effects: Effects | None = None,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
    same: Callable[[Any], object] | None = None,
    stubs: Callable[[Stubs], object] | None = None,
    workflows: Sequence[WorkflowDefinition[Any]] = (),
    meanwhile: Mapping[timedelta, Callable[[Any], object]] | None = None,
) -> Simulation[Any]:
    """Run a workflow without faults, and then once per seed with faults; each run must end in the same way.

    Two simulated workers share a simulated database. They crash at calls of the store and around effects, freeze for
    longer than their leases, lose answers of the store, and have clocks that jump; hints are lost, delayed or repeated.
    Everything happens in one thread and in virtual time, and the seed determines it. Bodies are called as they are;
    they must not open sockets, start threads or use randomness.

    Args:
        calls: The workflow with its input; or a list of them, whose runs are started together.
        seeds: The number of seeds, from 1; or the seeds themselves.
        effects: The external effects of bodies. They must be the same as without faults: none twice, none missing.
        before: Called before each execution, to reset the fakes that bodies use.
        after: Called after each execution that ended as it should, to check what bodies did. Its errors are raised.
        same: Returns the part of a result that must be the same; by default all of it.
        stubs: Called before each execution with the stubs, as in a world: `stubs.stub(charge).returns("paid")`.
        workflows: Further workflows that the calls start: children of a function, and targets of continue-as-new.
        meanwhile: Actions from outside by the time after the start, each done once, without faults. They get the run,
            or the list of runs, and may cancel it, wake its stage, and so on.

    Raises:
        SimulationFailedError: A seed has a problem. The message shows it with as few faults as possible.
        InvalidArgumentError: An argument has the wrong type, or there are no calls or no seeds.
    """
    several = _checked_calls(calls)
    if effects is not None and not isinstance(effects, Effects):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(
            "effects",
            f"effects is {effects!r}; it must be an Effects() in which the bodies record their effects",
        )
    is_one = isinstance(calls, Call)
    subject = SimulationInput(
        calls=several,
        meanwhile=_checked_meanwhile(meanwhile or {}, is_one=is_one),
        stubs=stubs or (lambda _: None),
        besides=_checked_workflows(workflows),
        effects=effects if effects is not None else Effects(),
    )
    wanted = _wanted(seeds)
    with _quiet():
        return _Simulating(subject, before, after, same).run(wanted, is_one=is_one)


def _checked_calls(given: Any) -> Sequence[Call[Any]]:
    calls: tuple[Any, ...] = tuple(given) if _is_list(given) else (given,)
    if not calls:
        raise InvalidArgumentError("calls", "calls is empty; there must be at least one call to simulate")
    for call in calls:
        if not isinstance(call, Call):
            name = getattr(call, "name", None)
            hint = f"; call it with its input: {name}(...)" if isinstance(name, str) else ""
            raise InvalidArgumentError(
                "calls",
                "simulate() expects the call of a workflow, such as order(...), or a list of calls, got"
                f" {call!r}{hint}",
            )
    return calls


def _checked_workflows(given: Sequence[Any]) -> Sequence[WorkflowDefinition[Any]]:
    for one in given:
        if not isinstance(one, WorkflowDefinition):
            raise InvalidArgumentError(
                "workflows", f"workflows has {one!r}; it must be a list of pipelines and durable functions"
            )
    return tuple(given)


def _is_list(given: object) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes)


def _checked_meanwhile(given: Mapping[Any, Any], *, is_one: bool) -> Meanwhile:
    for after, do in given.items():
        if not isinstance(after, timedelta) or after < timedelta() or not callable(do):
            raise InvalidArgumentError(
                "meanwhile",
                f"meanwhile has {do!r} at {after!r}; it must be functions by timedeltas after the start",
            )
    return {after: partial(_with_one, do) if is_one else do for after, do in given.items()}


def _with_one(do: Callable[[Any], object], runs: Sequence[SyncRunHandle[Any]]) -> object:
    return do(runs[0])


class _Simulating:
    """Repeats an execution with different faults, and compares the outcomes."""

    def __init__(
        self,
        subject: SimulationInput,
        before: Callable[[], object] | None,
        after: Callable[[], object] | None,
        same: Callable[[Any], object] | None,
    ) -> None:
        self._subject = subject
        self._before = before or (lambda: None)
        self._after = after or (lambda: None)
        self._same = same

    def run(self, seeds: Sequence[int], *, is_one: bool) -> Simulation[Any]:
        """Execute without faults, and then with those of each seed. Raises SimulationFailedError."""
        usual = self._play(0, Faults({}, FaultSchedule(), START), _YEAR, _YEAR)
        if usual.raised is not None:
            raise usual.raised
        if wrong := problems(usual, usual, self._same):
            raise SimulationFailedError(0, [f"without faults: {one}" for one in wrong], 0, usual)
        lease = max(_LEASE, 3 * usual.longest_body)
        bound = 2 * usual.seconds + 100 * lease + _LATER
        usual = self._play(0, Faults({}, FaultSchedule(), START), lease, bound)
        self._after()
        fired: Counter[str] = Counter()
        excused = 0
        for tried, seed in enumerate(seeds, 1):
            again = partial(self._again, seed, usual, lease, bound)
            trial = again(FaultSchedule())
            if wrong := problems(trial, usual, self._same):
                shown = _shrunk(again, trial, wrong, lambda one: problems(one, usual, self._same))
                raise SimulationFailedError(seed, shown[1], tried, shown[0])
            fired.update({kind.value: count for kind, count in trial.fired.items()})
            is_by_faults = is_excused(trial, usual)
            excused += is_by_faults
            if not is_by_faults:
                if trial.raised is not None:
                    trial.raised.add_note(f"This happened with seed {seed}.")
                    raise trial.raised
                self._after()
        return Simulation(
            seeds=len(seeds),
            fired=dict(fired),
            excused=excused,
            seconds=usual.seconds,
            effects=dict(usual.effects),
            result_of=usual.handles[0].result if is_one else lambda: [one.result() for one in usual.handles],
        )

    def _again(self, seed: int, usual: Trial, lease: float, bound: float, schedule: FaultSchedule) -> Trial:
        return self._play(seed, _AimedFaults(seed, schedule, usual.points, usual.in_bodies), lease, bound)

    def _play(self, seed: int, faults: Faults, lease: float, bound: float) -> Trial:
        self._before()
        try:
            with without_garbage_collection():
                return SimulatedCluster(seed, self._subject, faults, lease=lease, bound=bound).run()
        except HostError as error:
            error.add_note(
                f"This happened with seed {seed}. It is not a fault of the workflow: please report it."
            )
            raise


class _AimedFaults(Faults):
    """Faults that lose workers at random points, equally likely, besides other random faults.

    Half of the losses are aimed at points within bodies: there are few of these, and only there can effects be
    repeated.
    """

    def __init__(self, seed: int, schedule: FaultSchedule, points: int, in_bodies: int) -> None:
        """`points` is their number without faults, `in_bodies` the number of those within bodies."""
        random = Random(f"{seed}/faults")  # noqa: S311  # to be foreseeable is the point
        super().__init__(draw_strengths(random, _OTHERS), schedule, START)
        chosen = sorted(random.randint(1, max(1, points)) for _ in range(random.choice(_LOSSES)))
        aimed = [(point, random.choice(_LOST_BY)) for point in chosen]
        bodies = Random(f"{seed}/bodies")  # noqa: S311  # as above
        at_bodies = [bool(in_bodies) and bodies.random() < 0.5 for _ in aimed]
        self._aimed = [one for one, at_body in zip(aimed, at_bodies, strict=True) if not at_body]
        self._at_bodies = {bodies.randint(1, in_bodies) for at_body in at_bodies if at_body}
        self._all = 2 * points

    @override
    def next(
        self, process: str, point: int, random: Random, among: Sequence[FaultKind], now: int
    ) -> FaultKind | None:
        kind = super().next(process, point, random, among, now)
        self.is_on = self.is_on and (self.points <= self._all or bool(self._aimed or self._at_bodies))
        if kind is not None:
            return kind
        if among is BODY and self.in_bodies in self._at_bodies:
            self._at_bodies.remove(self.in_bodies)
            return self._lost(FaultKind.CRASH, process, point, now)
        if not self._aimed or self._aimed[0][0] > self.points or FaultKind.CRASH not in among:
            return None
        _, aimed = self._aimed.pop(0)
        return self._lost(aimed if aimed in among else FaultKind.CRASH, process, point, now)

    def _lost(self, by: FaultKind, process: str, point: int, now: int) -> FaultKind | None:
        if self._is_left_out(by, (process, point), now):
            return None
        self.fired.append(FiredFault(process, point, by))
        return by


def _shrunk(
    again: Callable[[FaultSchedule], Trial],
    trial: Trial,
    wrong: Sequence[str],
    judge: Callable[[Trial], Sequence[str]],
) -> tuple[Trial, Sequence[str]]:
    """Reduce the faults one by one as long as a problem remains. Return the last trial with its problems."""
    needed = list(dict.fromkeys(trial.places))
    for place in tuple(needed):
        fewer = frozenset(needed) - {place}
        try:
            tried = again(FaultSchedule(only=fewer))
        except HostError:
            continue
        if found := judge(tried):
            trial, wrong = tried, found
            needed = [one for one in needed if one in fewer]
    return trial, wrong


def _dated(line: str) -> str:
    """Return a line of a trace with its time as days, hours, minutes and seconds."""
    seconds, _, what = line.partition(" ")
    return line if not what else f"{timedelta(seconds=float(seconds))} {what}"


@contextmanager
def _quiet() -> Generator[None]:
    """Silence the logs of hosts, which would report every simulated fault."""
    logger: Any = logging.getLogger("holdfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
