"""`Gather`: many starts of a durable function become one run, for debounce and batches."""

from datetime import timedelta
from typing import Final, cast

import attrs

from holdfast.kernel.authoring.call_types import CallForm
from holdfast.kernel.authoring.options import to_timedelta, validator_of
from holdfast.kernel.pipelines.gather_plan import GATHERED_MAX, GatherPlan, Keep
from holdfast.kernel.values.type_forms import origin_of, show
from holdfast.ports.durations import SHORTEST, Duration, length_within, wanted_length
from holdfast.ports.errors import DefinitionError, InvalidArgumentError, UnstorableValueError
from holdfast.ports.json import compact, parse
from holdfast.ports.validation import TRUTH, Wanted, an, integer, shown

WITHIN_MAX: Final = timedelta(days=366)
"""The longest time for which a run gathers starts."""

_SHORTEST: Final = timedelta(milliseconds=1)
_WITHIN: Final = Wanted(
    wanted_length(_SHORTEST, WITHIN_MAX),
    lambda value: length_within(value, _SHORTEST, WITHIN_MAX) is not None,
)
_ATTRIBUTE: Final = Wanted(
    "the name of an attribute, a string of 1 to 256 characters, or None",
    lambda value: value is None or (isinstance(value, str) and 1 <= len(value) <= 256),
)
_KEEP: Final = Wanted("'first', 'last' or 'all'", lambda value: value in ("first", "last", "all"))


def _as_length(value: Duration) -> timedelta:
    """Return a duration as a timedelta, and anything else unchanged, for a validator to reject."""
    return cast("timedelta", to_timedelta(value))


@attrs.frozen(kw_only=True)
class Gather:
    """How starts of a durable function are gathered: a start joins the run that waits, until that run begins.

    Debounce: `Gather(by="document", quiet=5, within=60)`: the run begins when no start has come for five seconds, a
    minute after the first one at the latest, with the input of the last one. Batch:
    `Gather(by="tenant", within=10, most=100, keep="all")`: the run begins ten seconds after its first start, or with
    the hundredth, and its list has the items of all starts. A run that has begun gathers nothing more: the next start
    begins the next run.

    Attributes:
        within: How long after the first start the run begins at the latest: a timedelta or a number of seconds, from a
            millisecond to 366 days.
        quiet: It begins earlier, once no start has come for so long; without it, `within` after the first start.
        by: Name of an attribute of runs: starts with each of its texts are gathered separately, those without the
            attribute together. None: all starts of the workflow.
        most: With so many starts the run begins at once, 1 to 10,000. It also does with 10,000 starts, or 4 MiB of
            inputs.
        keep: Whose input the function gets: that of the "first" or the "last" start, in the order of their commits, or
            of "all": then the function has one parameter, a list, and gets the lists of all starts joined.
        split: With `keep="all"`: the function returns a list with one element for each item that it was given, and
            `result()` of each start is the part for its own items.

    Raises:
        DefinitionError: A value is out of range, or `quiet` is longer than `within`.
    """

    within: timedelta = attrs.field(converter=_as_length, validator=validator_of("Gather", _WITHIN))
    quiet: timedelta | None = attrs.field(
        default=None, converter=to_timedelta, validator=validator_of("Gather", _WITHIN.or_none)
    )
    by: str | None = attrs.field(default=None, validator=validator_of("Gather", _ATTRIBUTE))
    most: int | None = attrs.field(
        default=None, validator=validator_of("Gather", integer(1, GATHERED_MAX).or_none)
    )
    keep: Keep = attrs.field(default="last", validator=validator_of("Gather", _KEEP))
    split: bool = attrs.field(default=False, validator=validator_of("Gather", TRUTH))

    def __attrs_post_init__(self) -> None:
        if self.quiet is not None and self.quiet > self.within:
            raise DefinitionError(
                f"Gather: quiet is {self.quiet}, and within is {self.within}; quiet can't be longer than within"
            )
        if self.split and self.keep != "all":
            raise DefinitionError(
                f"Gather: split is True, and keep is {self.keep!r}; only the result of keep='all' can be split"
            )

    def plan(self) -> GatherPlan:
        """Return it as part of a plan."""
        quiet = self.quiet
        return GatherPlan(
            within_us=self.within // SHORTEST,
            quiet_us=None if quiet is None else quiet // SHORTEST,
            by=self.by,
            most=self.most,
            keep=self.keep,
            split=self.split,
        )


GATHER: Final = an("a Gather(...)", Gather)


def check_gathered(gather: Gather, form: CallForm) -> None:
    """Raise DefinitionError if the inputs of this function can't be joined, or its result can't be split."""
    if gather.keep != "all":
        return
    parameters = list(form.signature.parameters.values())
    if len(parameters) != 1 or parameters[0].kind in (
        parameters[0].VAR_POSITIONAL,
        parameters[0].VAR_KEYWORD,
    ):
        raise DefinitionError(
            f"{form.what} gathers with keep='all', so it must have exactly one parameter, a list, such as"
            f" `rows: list[Row]`; it has {len(parameters)}"
        )
    hint = form.hints[parameters[0].name]
    if origin_of(hint) is not list:
        raise DefinitionError(
            f"{form.what} gathers with keep='all', so its parameter {parameters[0].name!r} must be a list, such as"
            f" `list[str]`, not {show(hint)}"
        )
    if gather.split and origin_of(form.output) is not list:
        raise DefinitionError(
            f"{form.what} gathers with split=True, so it must return a list with one element for each item that it is"
            f" given, not {show(form.output)}"
        )


def joined_input(text: str) -> str:
    """Return the arguments for the function as JSON text: its one list, joined from those of all starts.

    `text` is the JSON text of the list of their arguments, in order.
    """
    starts = cast("list[dict[str, list[object]]]", parse(text))
    name = next(iter(starts[0]))
    return compact({name: [item for one in starts for item in one[name]]})


def check_parts(workflow: str, items: int, result: object) -> None:
    """Raise UnstorableValueError if a result can't be split: if it has not one element for each of `items` items."""
    found = len(cast("list[object]", result)) if isinstance(result, list) else None
    if found != items:
        has = "is no list" if found is None else f"has {found:,}"
        raise UnstorableValueError(
            "$",
            f"{workflow} returns one element for each item that it is given, {items:,} here, and its result {has}",
        )


def items_of(workflow: str, value: object) -> int:
    """Return how many items the list has that a call is given. InvalidArgumentError if it is no list."""
    arguments = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    given = next(iter(arguments.values()), None)
    if not isinstance(given, list):
        raise InvalidArgumentError(
            "call",
            f"{workflow} joins the lists of its starts, and got {shown(given)}; give it a list, also for a single"
            " item, as in `insert([row])`",
        )
    return len(cast("list[object]", given))
