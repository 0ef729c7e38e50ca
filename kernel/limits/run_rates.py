"""Rates of starts of runs: which rate a start counts against, how many units it costs, and when it fits.

The same windows as those of stages count them (`kernel/limits/rates.py`), in rows named `run-rate:<name>`, with
`/<text>` if the rate is counted for each text of an attribute. See docs/decisions/0089.
"""

from collections.abc import Mapping

from holdfast.kernel.commands import RunCreate
from holdfast.kernel.commands.names import NAME_MAX, text_fault
from holdfast.kernel.limits.concurrency import short_text
from holdfast.kernel.limits.limit_names import LimitKind
from holdfast.kernel.limits.overrides import rate_in_force
from holdfast.kernel.limits.rates import Rates
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.limits import LimitName, LimitRow, OverRate, RunRatePlan
from holdfast.ports.records.run import Run, attribute_texts
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve, frozen

_LIMIT_MAX = 1_000_000
_PERIODS = 1_000, 86_400_000_000


@frozen
class RunRate:
    """The rate that one start counts against."""

    key: str
    limit: int
    """How many units may start in any span of `period`."""
    period: Micros
    units: int
    """How many of them this start costs."""
    over: OverRate


@frozen
class Fit:
    """Whether a start fits now."""

    used: int
    """How many units count."""
    limit: int
    """The limit in force."""
    period: Micros
    units: int
    """How many units the start costs: no more than the limit, so that it fits when nothing else counts."""
    now: Micros
    """The instant that it would count as now."""
    at: Micros
    """When it fits, if nothing else starts until then."""

    @property
    def is_now(self) -> bool:
        """Whether it fits now."""
        return self.at <= self.now


def with_rate(command: RunCreate, plan: Plan) -> RunCreate:
    """Return a start with the rate of its workflow, unless it has one of its own. Raises InvalidCommandError.

    It costs as many units as it says, or as the attribute says that the rate names.
    """
    rate = plan.rate if command.rate is None else command.rate
    if rate is None:
        if command.units is not None:
            raise InvalidCommandError(
                f"units is {command.units}, but neither the start nor {plan.workflow!r} has a rate; give a rate, or"
                " leave it out"
            )
        return command
    _check(rate)
    return evolve(command, rate=rate, units=_units(command, rate))


def rate_of(command: RunCreate) -> RunRate | None:
    """Return the rate that a start counts against, once it has that of its workflow; None without one."""
    rate = command.rate
    if rate is None:
        return None
    key = rate_key(rate, command.workflow, command.attributes)
    return RunRate(key, rate.limit, rate.period, command.units or 1, rate.over)


def waits_for_rate(command: RunCreate) -> bool:
    """Return whether the run of a start waits until its rate allows it."""
    return command.rate is not None and command.rate.over is OverRate.WAIT


def rate_key(rate: RunRatePlan, workflow: str, attributes: str | None) -> str:
    """Return the name under which the starts of runs with these attributes, which are JSON text, are counted."""
    key = f"{LimitKind.RUN_RATE.value}:{rate.name or workflow}"
    return key if rate.by is None else f"{key}/{short_text(attribute_texts(attributes).get(rate.by))}"


def fit_of(rates: Rates, rows: Mapping[LimitName, LimitRow], run: Run) -> Fit:
    """Return whether the start of a run that has a rate fits now, by the limit in force."""
    name = run.rate
    assert name is not None
    limit, period = rate_in_force(rows, run)
    starts, now = rates.starts(name), rates.instant(name)
    units = min(run.rate_units or 1, limit)
    at = starts.free_for_at(limit, period, now, units)
    assert at is not None
    return Fit(limit - starts.capacity(limit, period, now), limit, period, units, now, at)


def counted(rates: Rates, run: Run, fit: Fit) -> Run:
    """Count the start of a run that fits, and return the run as counted."""
    name = run.rate
    assert name is not None
    rates.count(name, rates.starts(name).with_units(fit.limit, fit.period, fit.now, fit.units))
    return evolve(run, rate_counted_at=fit.now, in_rate_line=0)


def _check(rate: RunRatePlan) -> None:
    shortest, longest = _PERIODS
    if not 1 <= rate.limit <= _LIMIT_MAX:
        raise InvalidCommandError(f"the limit of a rate is {rate.limit}; it must be from 1 to {_LIMIT_MAX:,}")
    if not shortest <= rate.period <= longest:
        raise InvalidCommandError(
            f"the period of a rate is {rate.period} microseconds; it must be from {shortest:,} to {longest:,}"
        )
    if rate.name is not None and ("/" in rate.name or text_fault(rate.name, NAME_MAX, 1)):
        raise InvalidCommandError(
            f"{rate.name[:100]!r} is not the name of a rate: write 1 to {NAME_MAX} printable characters without a slash"
        )


def _units(command: RunCreate, rate: RunRatePlan) -> int:
    units, whose = command.units, "units"
    if units is None and rate.units is not None:
        text = attribute_texts(command.attributes).get(rate.units)
        whose = f"the attribute {rate.units!r}, which says how many units the run costs,"
        if text is not None and not (
            text.isascii() and text.isdecimal() and len(text) <= len(str(_LIMIT_MAX))
        ):
            raise InvalidCommandError(f"{whose} is {text[:100]!r}; write a whole number, such as '250'")
        units = None if text is None else int(text)
    units = 1 if units is None else units
    if not 1 <= units <= rate.limit:
        raise InvalidCommandError(
            f"{whose} is {units:,}; it must be from 1 to {rate.limit:,}, the limit of its rate: what costs more than"
            " the whole rate would never start"
        )
    return units
