"""The commands `holdfast schedule create` and `holdfast schedule update`."""

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeVar, cast

import attrs
import click

from holdfast.hosts.cli.backends import StoreBackend
from holdfast.hosts.cli.console import Screen, safe
from holdfast.hosts.cli.engine_options import Target, engine_command, is_engine, store_options
from holdfast.hosts.cli.exit_codes import CliError, Exit
from holdfast.hosts.cli.filter_options import instant_of, length, named_texts, start_moment
from holdfast.hosts.cli.run_start import call_of, read_input, workflow_named
from holdfast.hosts.cli.schedule_control import OVERLAPS, next_text, note_declared
from holdfast.hosts.cli.schedules import similar_names
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.schedules import put_command
from holdfast.hosts.inspection.schedules import ScheduleInfo, read_schedule
from holdfast.kernel.authoring.options import PRIORITY_MAX
from holdfast.kernel.authoring.schedules import Schedule
from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.kernel.commands import SchedulePut
from holdfast.kernel.commands.schedules import COUNT_MAX, FAILURES_MAX
from holdfast.kernel.schedules.row_data import policy_of, specs_of, start_of
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.structs import evolve
from holdfast.ports.unreadable import PARSE_ERRORS

T = TypeVar("T")

_CRON: Final = ("zone", "gap", "fold", "days", "except_on")
"""The options of cron expressions alone, by the names that `Cron` has for them."""
_BOUNDS: Final = ("start", "end")
_POLICY: Final = {
    "overlap": "overlap",
    "missed": "missed",
    "missed_within": "window",
    "jitter": "jitter",
    "pause_after_failures": "pause_after_failures",
    "max_runs": "runs_max",
}
"""The options of a schedule, with the field of `SchedulePolicy` for each."""
_START: Final = ("queue", "priority", "attributes", "headers", "deadline")
"""The options of each run."""
_CLEARED: Final[Mapping[str, object]] = {
    "except_on": (),
    "missed_within": None,
    **dict.fromkeys(("start", "end", "fold", "days", "pause_after_failures", "max_runs", *_START)),
}
"""The options that `--clear` removes, with their value without any."""
_OPTIONS: Final[Mapping[str, str]] = {
    "zone": "timezone",
    "except_on": "except",
    "start": "starts",
    "end": "ends",
    "attributes": "attribute",
    "headers": "header",
}
"""The options on the command line that have other names there."""


@attrs.frozen(kw_only=True)
class _Given:
    """The options that were given."""

    crons: tuple[str, ...]
    every: tuple[timedelta, ...]
    values: Mapping[str, Any]
    """The others by the names of the keywords of `Cron`, `Every` and `Schedule`; without those that were left out."""

    def of(self, *names: str) -> dict[str, Any]:
        """Return the values of these options, as far as they were given."""
        return {name: self.values[name] for name in names if name in self.values}


def _option(name: str) -> str:
    return f"--{_OPTIONS.get(name, name).replace('_', '-')}"


def _day(text: str) -> date:
    """Parse a date. Raises BadParameter."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a date: write 2026-12-25") from None


_SCHEDULE_OPTIONS: Final = (
    click.option(
        "--cron",
        "crons",
        multiple=True,
        metavar="TEXT",
        help='A cron expression in quotes, such as "30 2 * * *". May be repeated.',
    ),
    click.option(
        "--every",
        multiple=True,
        type=length,
        metavar="LENGTH",
        help="An interval, such as 6h. May be repeated.",
    ),
    click.option(
        "--timezone", "zone", metavar="ZONE", help="The zone of the cron expressions, such as Europe/Paris."
    ),
    click.option(
        "--gap",
        type=click.Choice(["shift", "skip"]),
        help="A time that the clock skips is later by the length of the gap, or does not fire.  [default: shift]",
    ),
    click.option(
        "--fold",
        type=click.Choice(["first", "last", "both"]),
        help="Which pass of a time that the clock repeats fires.  [default: both if every hour is allowed, else first]",
    ),
    click.option(
        "--days",
        type=click.Choice(["either", "both"]),
        help="Whether one or both of day of month and day of week must match.  [default: either]",
    ),
    click.option(
        "--except",
        "except_on",
        multiple=True,
        type=_day,
        metavar="DATE",
        help="A date of the zone on which no cron expression fires. May be repeated.",
    ),
    click.option(
        "--starts",
        "start",
        type=start_moment,
        metavar="TIME",
        help="Nothing fires before it: 2026-11-21T08:00Z, 2026-11-21, or after a delay such as 7d.",
    ),
    click.option("--ends", "end", type=start_moment, metavar="TIME", help="Everything fires before it."),
    click.option(
        "--overlap",
        type=click.Choice(OVERLAPS),
        help="What happens at a time while runs of the schedule have not ended.  [default: skip]",
    ),
    click.option(
        "--missed",
        type=click.Choice(["last", "all", "none"]),
        help="Which times are made up for that passed while no worker ran.  [default: last]",
    ),
    click.option(
        "--missed-within",
        type=length,
        metavar="LENGTH",
        help="How late a missed time may be to be made up for.  [default: any for last, 1d for all, 5m for none]",
    ),
    click.option(
        "--jitter", type=length, metavar="LENGTH", help="Start each run up to this long after its time."
    ),
    click.option(
        "--pause-after-failures",
        type=click.IntRange(1, FAILURES_MAX),
        metavar="N",
        help="Pause the schedule once so many of its runs in a row have failed.",
    ),
    click.option(
        "--max-runs", type=click.IntRange(1, COUNT_MAX), metavar="N", help="Stop after so many runs."
    ),
    click.option("--queue", metavar="NAME", help="The queue of the runs' jobs."),
    click.option(
        "--priority",
        type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX),
        metavar="N",
        help="A head start of the runs of N minutes in the queue.",
    ),
    click.option(
        "--attribute",
        "attributes",
        multiple=True,
        metavar="NAME=TEXT",
        help="A text to find the runs by. May be repeated.",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=TEXT",
        help="A text that the steps and child runs of each run have too. May be repeated.",
    ),
    click.option(
        "--deadline",
        type=length,
        metavar="LENGTH",
        help="Fail a run that takes longer than this, such as 90m.",
    ),
    click.option("--input-file", metavar="FILE", help="Read the input from a file; - is stdin."),
)


def _schedule_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a schedule to a command. Its body gets `given`."""

    @functools.wraps(body)
    def with_given(**options: Any) -> None:
        values = {name: options.pop(name) for name in (*_CRON, *_BOUNDS, *_POLICY, *_START)}
        values["attributes"] = named_texts(values["attributes"])
        values["headers"] = named_texts(values["headers"], "--header")
        now = datetime.now(UTC)
        for name in _BOUNDS:
            at = values[name]
            delay = -at if isinstance(at, timedelta) else at
            values[name] = instant_of(delay, now, utc=options["utc"])
        left_out: tuple[object, ...] = (None, (), {})
        given = _Given(
            crons=options.pop("crons"),
            every=options.pop("every"),
            values={name: value for name, value in values.items() if value not in left_out},
        )
        body(given=given, **options)

    for option in reversed(_SCHEDULE_OPTIONS):
        with_given = option(with_given)
    return with_given


@engine_command("create", "[ENGINE] NAME WORKFLOW [INPUT]", Exit.NOT_FOUND, Exit.REFUSED)
@_schedule_options
@store_options
def create_command(*, screen: Screen, target: Target, given: _Given, input_file: str | None) -> None:
    """Create a schedule, which starts a workflow by the clock.

    INPUT is JSON of the type that the workflow declares. Refused if a schedule of this name exists. Needs the
    workflow's code. Schedules that belong to the code are declared in it instead: Engine.open(schedules=[...]).
    """
    spec, (name, workflow, *more) = _parted(target.words, "NAME", "WORKFLOW")
    text = _input_of(more, input_file)
    if not given.crons and not given.every:
        raise click.UsageError("say when: --cron TEXT or --every LENGTH")
    when = _specs(given, ())
    with target.engine_with_code(spec, "schedule create") as engine:
        call = call_of(workflow_named(engine.core, workflow), text)
        schedule = Schedule(name, call, when=when, **given.of(*_POLICY, *_START))
        info = engine.sync.create_schedule(schedule).info()
    _print_put(screen, info, "was created")


@engine_command("update", "[ENGINE] NAME [INPUT]", Exit.NOT_FOUND, Exit.REFUSED)
@click.option(
    "--clear",
    multiple=True,
    type=click.Choice([_option(name)[2:] for name in _CLEARED]),
    help="Remove this option from the schedule. May be repeated.",
)
@_schedule_options
@store_options
def update_command(
    *, screen: Screen, target: Target, given: _Given, input_file: str | None, clear: tuple[str, ...]
) -> None:
    """Change a schedule. What is not given stays as it is.

    With --cron or --every, these times replace all of its times. What was counted, and a pause, stay. A change of its
    times counts from now. Needs the workflow's code.
    """
    spec, (name, *more) = _parted(target.words, "NAME")
    text = _input_of(more, input_file)
    given = _cleared(given, clear)
    with target.engine_with_code(spec, "schedule update") as engine, similar_names(StoreBackend(engine)):
        row = read_schedule(engine.core, name)
        engine.client.dispatch(_changed(engine, row, given, text))
        info = engine.sync.schedule(name).info()
    _print_put(screen, info, "was updated")
    if row.declared is not None:
        note_declared(screen)


def _print_put(screen: Screen, info: ScheduleInfo, what: str) -> None:
    pause = "; it is paused" if info.state == "paused" else ""
    screen.answer(info, f"{safe(info.name)} {what}{pause}{next_text(screen, info)}")


def _parted(words: tuple[str, ...], *wanted: str) -> tuple[str | None, tuple[str, ...]]:
    """Split the arguments into the optional ENGINE, one for each name, and an optional INPUT. Raises UsageError."""
    spec, others = (words[0], words[1:]) if words and is_engine(words[0]) else (None, words)
    if len(others) < len(wanted):
        raise click.UsageError(f"{' and '.join(wanted[len(others) :])} is missing")
    if len(others) > len(wanted) + 1:
        raise click.UsageError(
            f"unexpected argument {others[len(wanted) + 1]!r}; quote JSON, so that it is one argument"
        )
    return spec, others


def _input_of(more: Sequence[str], input_file: str | None) -> str | None:
    if input_file is None:
        return more[0] if more else None
    if more:
        raise click.UsageError("pass the input as INPUT or with --input-file, not both")
    return read_input(input_file)


def _cleared(given: _Given, clear: tuple[str, ...]) -> _Given:
    """Return the options with those that are to be removed. Raises UsageError."""
    names = {_option(name)[2:]: name for name in _CLEARED}
    for option in clear:
        if names[option] in given.values:
            raise click.UsageError(f"pass --{option} or --clear {option}, not both")
    removed = {names[option]: _CLEARED[names[option]] for option in clear}
    return attrs.evolve(given, values={**given.values, **removed})


def _specs(given: _Given, known: Sequence[Spec]) -> tuple[Spec, ...]:
    """Return the times of a schedule: given ones, with the options of those that it has; or these, changed."""
    of_crons, bounds = given.of(*_CRON), given.of(*_BOUNDS)
    if not given.crons and not given.every:
        if of_crons and not any(isinstance(spec, Cron) for spec in known):
            raise click.UsageError(f"{_option(next(iter(of_crons)))} needs --cron")
        return tuple(_evolved(spec, {**of_crons, **bounds}) for spec in known)
    if of_crons and not given.crons:
        raise click.UsageError(f"{_option(next(iter(of_crons)))} needs --cron")
    bounds = {**_common(known, _BOUNDS, bounds), **bounds}
    before = [spec for spec in known if isinstance(spec, Cron)]
    of_crons = {**_common(before, _CRON, of_crons), **of_crons, **bounds}
    crons = (Cron(given.crons, **of_crons),) if given.crons else ()
    return (*crons, *(Every(one, **bounds) for one in given.every))


def _evolved(spec: Spec, changes: Mapping[str, Any]) -> Spec:
    own = {name: value for name, value in changes.items() if isinstance(spec, Cron) or name in _BOUNDS}
    return attrs.evolve(spec, **own) if own else spec


def _common(known: Sequence[Spec], names: Sequence[str], given: Mapping[str, object]) -> dict[str, Any]:
    """Return the options that the times of a schedule share. UsageError if they differ, and none is given."""
    found: dict[str, Any] = {}
    for name in names:
        values = [cast("object", getattr(spec, name)) for spec in known]
        if values and values.count(values[0]) == len(values):
            found[name] = values[0]
        elif values and name not in given:
            raise click.UsageError(f"the times of the schedule differ in {_option(name)}: give it")
    return found


def _changed(engine: Engine, row: ScheduleRow, given: _Given, text: str | None) -> SchedulePut:
    """Return the command that changes a stored schedule."""
    core = engine.core
    try:
        start, policy, known = start_of(row), policy_of(row), specs_of(row.timing)
    except PARSE_ERRORS as error:
        message = f"the schedule {row.name!r} can't be read: {error}; remove it, and create it again"
        raise CliError(Exit.REFUSED, "unreadable", message) from error
    workflow = workflow_named(core, row.workflow)
    call = call_of(workflow, start.input.inline if text is None else text)
    of_schedule = {"overlap": policy.overlap.value, **given.of(*_POLICY)}
    of_runs = {name: value for name, value in given.of(*_START).items() if value is not None}
    schedule = Schedule(row.name, call, when=_specs(given, known), **of_schedule, **of_runs)
    new = put_command(core, schedule)
    changes: dict[str, Any] = {name: getattr(new.start, name) for name in given.of(*_START)}
    if text is not None:
        changes["input"] = new.start.input
    fields = {_POLICY[name]: getattr(new.policy, _POLICY[name]) for name in given.of(*_POLICY)}
    return evolve(new, if_exists="update", start=evolve(start, **changes), policy=evolve(policy, **fields))
