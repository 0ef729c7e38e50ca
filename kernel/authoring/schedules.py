"""`Schedule`: a workflow that starts by the clock."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Generic, Literal, TypeAlias, cast, get_args

import attrs
from typing_extensions import TypeVar

from holdfast.kernel.authoring.calls import Call, WorkflowDefinition
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.nodes import AnyNode
from holdfast.kernel.authoring.options import StartOptions, check_options, to_timedelta
from holdfast.kernel.calendars.specs import Cron, Every
from holdfast.kernel.commands.schedules import (
    COUNT_MAX,
    FAILURES_MAX,
    JITTER_MAX,
    WINDOW_MAX,
    Missed,
    Overlap,
    SchedulePolicy,
)
from holdfast.kernel.schedules.row_data import SPECS_MAX, timing_of
from holdfast.ports.durations import NO_TIME, SHORTEST, Duration, length_within, wanted_length
from holdfast.ports.errors import DefinitionError
from holdfast.ports.records.values import Micros
from holdfast.ports.validation import Wanted, an, integer, shown

Out = TypeVar("Out", covariant=True)

OverlapName: TypeAlias = Literal["skip", "queue", "queue_one", "cancel", "terminate", "allow"]
"""What a schedule does at a nominal time while runs that it started before have not ended. See `Schedule`."""
MissedName: TypeAlias = Literal["last", "all", "none"]
"""What a schedule does about nominal times that passed while no host fired it. See `Schedule`."""


_NAME: Final = an("a string of 1 to 200 characters", str)
_CALL: Final = an("the call of a workflow, such as report('emea')", Call)
_COUNT: Final = integer(1, COUNT_MAX).or_none
_FAILURES: Final = integer(1, FAILURES_MAX).or_none
_MICROSECOND: Final = timedelta(microseconds=1)
_RUN_OPTIONS: Final = (
    *("queue", "priority", "attributes", "headers", "annotations", "deadline"),
    *("concurrency", "overrides"),
)
"""The options of each run, which are those of a start."""


def _micros(length: Duration | None) -> Micros | None:
    found = to_timedelta(length)
    return None if found is None else found // _MICROSECOND


def _specs(when: Cron | Every | Sequence[Cron | Every]) -> tuple[Cron | Every, ...]:
    given: object = when
    listed = (given,) if isinstance(given, Cron | Every) else given
    specs = cast("Sequence[Cron | Every]", listed) if isinstance(listed, list | tuple) else ()
    if 1 <= len(specs) <= SPECS_MAX and not any(_is_other(one) for one in specs):
        return tuple(specs)
    hint = f"; write when=Cron({given!r})" if isinstance(given, str) else ""
    hint = hint or ("; write when=Every(...)" if isinstance(given, timedelta) else "")
    words = f"a Cron(...) or an Every(...), or a list of 1 to {SPECS_MAX} of them"
    raise DefinitionError(f"Schedule: when is {shown(given)}; it must be {words}{hint}")


def _is_other(spec: object) -> bool:
    return not isinstance(spec, Cron | Every)


@attrs.frozen
class Schedule(Generic[Out]):
    """A workflow that starts by the clock.

    `Schedule("nightly", report("emea"), when=Cron("30 2 * * *", zone="Europe/Paris"))`. Pass it to
    `Engine.open(schedules=[...])`, or create it at run time with `engine.create_schedule`.

    Each nominal time has one run at most. The id of the run is `<name>/<nominal time in UTC>`.

    Attributes:
        name: Name in the namespace, of 1 to 200 characters.
        call: The call that each run is: a workflow with its input.
        when: A cron expression or an interval, or a list: the times of all of them are the nominal times.
        overlap: What happens at a nominal time while runs of the schedule have not ended. "skip": nothing starts.
            "queue": the new run waits. "queue_one": it waits, and takes the place of another one that waits.
            "cancel": the others are cancelled, and the new run starts once they have cleaned up. "terminate": the
            others end at once, and the new run starts. "allow": it starts beside them.
        missed: What happens about nominal times that passed while no worker ran. "last": the last of them is made up
            for. "all": each of them is, oldest first, as far back as `missed_within`. "none": none is, unless it is
            late by no more than `missed_within`.
        missed_within: How late a missed time may be to be made up for. Default: any time for "last", a day for "all",
            five minutes for "none".
        jitter: A run starts up to this long after its nominal time. By how much follows from the schedule and the
            nominal time.
        pause_after_failures: Pause the schedule once so many of its runs in a row have failed.
        max_runs: Stop after so many runs.
        queue: Queue of each run's jobs. Default: that of the workflow.
        priority: Head start of each run in its queue, one minute per step. Default: that of the workflow.
        attributes: Short texts by which the runs are found.
        headers: Texts that the steps and child runs of each run have too. See `StartOptions`.
        annotations: First annotations of each run: plain JSON by name.
        deadline: How long a run may take. Default: that of the workflow.
        concurrency: How many runs of a key may be under way and waiting. Not with overlap "queue", "queue_one" or
            "cancel". Default: that of the workflow. A time for which the start is refused is skipped.
        overrides: Stages of the pipeline with other options or another config: `[resize.options(queue="gpu")]`.

    Raises:
        DefinitionError: The name, the call, `when` or a policy of the schedule is invalid.
        InvalidArgumentError: An option of the runs is invalid, such as `queue` or `deadline`.
    """

    name: str
    call: Call[Out]
    when: tuple[Cron | Every, ...] = attrs.field(converter=_specs, kw_only=True)
    overlap: OverlapName = attrs.field(default="skip", kw_only=True)
    missed: MissedName = attrs.field(default="last", kw_only=True)
    missed_within: Duration | None = attrs.field(default=None, kw_only=True)
    jitter: Duration = attrs.field(default=0, kw_only=True)
    pause_after_failures: int | None = attrs.field(default=None, kw_only=True)
    max_runs: int | None = attrs.field(default=None, kw_only=True)
    queue: str | None = attrs.field(default=None, kw_only=True)
    priority: int | None = attrs.field(default=None, kw_only=True)
    attributes: Mapping[str, str] | None = attrs.field(default=None, kw_only=True, hash=False)
    headers: Mapping[str, str] | None = attrs.field(default=None, kw_only=True, hash=False)
    annotations: Mapping[str, object] | None = attrs.field(default=None, kw_only=True, hash=False)
    deadline: Duration | None = attrs.field(default=None, kw_only=True)
    concurrency: Concurrency | None = attrs.field(default=None, kw_only=True)
    overrides: Sequence[AnyNode[object]] = attrs.field(default=(), kw_only=True, hash=False)

    def __attrs_post_init__(self) -> None:
        _check("name", self.name, _NAME)
        where = f"Schedule {self.name!r}"
        call: object = self.call
        hint = f"; call it with its input: {call.name}(...)" if isinstance(call, WorkflowDefinition) else ""
        _check("call", call, Wanted(_CALL.words + hint, _CALL.test), where)
        _check_choice("overlap", self.overlap, get_args(OverlapName), where)
        _check_choice("missed", self.missed, get_args(MissedName), where)
        _check_length("missed_within", self.missed_within, SHORTEST, WINDOW_MAX, where)
        _check_length("jitter", self.jitter, NO_TIME, JITTER_MAX, where)
        _check("pause_after_failures", self.pause_after_failures, _FAILURES, where)
        _check("max_runs", self.max_runs, _COUNT, where)
        check_options(self.start_options, StartOptions, where)

    @property
    def start_options(self) -> StartOptions:
        """The options of each run as those of a start."""
        given = {name: getattr(self, name) for name in _RUN_OPTIONS}
        return cast("StartOptions", {name: value for name, value in given.items() if value not in (None, ())})

    @property
    def timing(self) -> str:
        """The nominal times as JSON text."""
        return timing_of(self.when)

    @property
    def policy(self) -> SchedulePolicy:
        """What it does about overlaps and missed times, and when it stops."""
        return SchedulePolicy(
            overlap=Overlap(self.overlap),
            missed=Missed(self.missed),
            window=_micros(self.missed_within),
            jitter=_micros(self.jitter) or 0,
            pause_after_failures=self.pause_after_failures,
            runs_max=self.max_runs,
        )


def _check(option: str, value: object, wanted: Wanted, where: str = "Schedule") -> None:
    if not wanted.test(value):
        raise DefinitionError(f"{where}: {option} is {shown(value)}; it must be {wanted.words}")


def _check_choice(option: str, value: object, possible: tuple[str, ...], where: str) -> None:
    if value not in possible:
        *others, last = map(repr, possible)
        raise DefinitionError(
            f"{where}: {option} is {shown(value)}; it must be {', '.join(others)} or {last}"
        )


def _check_length(option: str, value: object, least: timedelta, most: int, where: str) -> None:
    longest = timedelta(microseconds=most)
    if value is not None and length_within(value, least, longest) is None:
        words = f"{wanted_length(least)}, of {longest.days} days at most"
        raise DefinitionError(f"{where}: {option} is {shown(value)}; it must be {words}")
