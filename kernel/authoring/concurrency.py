"""`Concurrency`: how many runs of a key are under way, how many may wait, and what a start does beyond that."""

from typing import Final, Literal, TypeAlias, get_args

import attrs

from holdfast.kernel.commands.names import CONCURRENCY_KEY_MAX
from holdfast.kernel.limits.levels import CONCURRENCY_LIMIT_MAX, LEVEL_KEY_MAX, check_level_key
from holdfast.kernel.limits.start_bounds import WAITING_MAX, waiting_max
from holdfast.ports.errors import DefinitionError, InvalidCommandError
from holdfast.ports.records.limits import LEVELS_MAX, ConcurrencyPlan, OuterLevel, WhenFull
from holdfast.ports.validation import Wanted, an, integer, shown

FullName: TypeAlias = Literal["wait", "refuse", "return", "replace", "cancel", "terminate"]
"""What a start does if too many runs of its key are open. See `Concurrency`."""

_LIMIT: Final = integer(1, CONCURRENCY_LIMIT_MAX)
_WAITING: Final = integer(0, WAITING_MAX).or_none
_TEXT: Final = Wanted(
    "a string of 1 to 256 characters", lambda value: isinstance(value, str) and 1 <= len(value) <= 256
)


@attrs.frozen
class Concurrency:
    """How many runs of a key are under way at a time, how many may wait, and what a start does beyond that.

    `Concurrency("customer 17", limit=1, waiting=1, full="replace")`. Pass it to a start, or to a workflow for all
    of its starts: `@workflow(concurrency=Concurrency(by="tenant", limit=2))`. One on a start takes precedence.

    Attributes:
        key: Runs of the namespace with this key share the limit, whatever their workflow. Give either `key` or `by`.
        by: Name of an attribute of the run: for each workflow, each text of the attribute is a key of its own. A run
            without the attribute has no key, and no limit.
        limit: Maximum number of runs of the key that are under way. Others are pending.
        waiting: Maximum number that wait. Default: any number with `full="wait"`, 1 with "replace", otherwise 0.
        full: What a start does if with it more than `limit` + `waiting` runs of the key would be under way or waiting.
            Runs that are ending do not count. "wait": it waits; there is no bound. "refuse": it raises
            ConcurrencyFullError. "return": it returns the newest of these runs, whatever its input. "replace": the
            oldest that waits is cancelled. "cancel": the oldest under way is cancelled and cleans up, and the new run
            waits until it is gone. "terminate": it ends at once, without cleaning up. If none is under way, these two
            cancel the oldest that waits.
        within: A limit around this one: a run starts once both have room. Three limits can be within each other. Each
            key of this limit has its own runs within each key of the outer one, so two tenants may both have a user
            "1". An outer limit has neither `waiting` nor `full`. Workflows whose outermost key is the same share the
            keys within it: give them the same limits.

    Raises:
        DefinitionError: A value is invalid.
    """

    key: str | None = None
    by: str | None = attrs.field(default=None, kw_only=True)
    limit: int = attrs.field(default=1, kw_only=True)
    waiting: int | None = attrs.field(default=None, kw_only=True)
    full: FullName = attrs.field(default="wait", kw_only=True)
    within: "Concurrency | None" = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        _check_key(self.key, self.by)
        _check_levels(self)
        _check("limit", self.limit, _LIMIT)
        _check("waiting", self.waiting, _WAITING)
        if self.full not in get_args(FullName):
            *others, last = map(repr, get_args(FullName))
            raise DefinitionError(
                f"Concurrency: full is {shown(self.full)}; it must be {', '.join(others)} or {last}"
            )
        if self.full == "wait" and self.waiting is not None:
            raise DefinitionError(
                f"Concurrency: waiting is {self.waiting}, but with full='wait' any number of runs may wait; leave it "
                "out, or say with full= what a start does then: 'refuse', 'return', 'replace', 'cancel', 'terminate'"
            )
        if self.full == "replace" and self.waiting == 0:
            raise DefinitionError(
                "Concurrency: waiting is 0, but full='replace' replaces a run that waits; write waiting=1, or use "
                "full='cancel' or full='terminate' to end a run that is under way"
            )

    @property
    def plan(self) -> ConcurrencyPlan:
        """The limit as a workflow stores it."""
        full = WhenFull(self.full)
        return ConcurrencyPlan(
            key=self.key,
            by=self.by,
            limit=self.limit,
            waiting=waiting_max(full, self.waiting),
            full=full,
            within=tuple(OuterLevel(key=one.key, by=one.by, limit=one.limit) for one in _outer(self)),
        )


def _outer(limit: Concurrency) -> list[Concurrency]:
    """Return the limits around one, the outermost first."""
    return [] if limit.within is None else [*_outer(limit.within), limit.within]


def _check_levels(innermost: Concurrency) -> None:
    _check("within", innermost.within, CONCURRENCY.or_none)
    outer = _outer(innermost)
    for one in outer:
        if one.full != "wait":
            raise DefinitionError(
                f"Concurrency: full is {one.full!r} in a limit around another one, but what a start does is decided by "
                "the innermost limit: write full= and waiting= there"
            )
    if len(outer) >= LEVELS_MAX:
        raise DefinitionError(
            f"Concurrency: {len(outer) + 1} limits are within each other; at most {LEVELS_MAX} can be: leave out one "
            "in the middle"
        )
    levels = (*outer, innermost)
    for place, one in enumerate(levels):
        if one.key is None:
            continue
        try:
            check_level_key(one.key, LEVEL_KEY_MAX if place else CONCURRENCY_KEY_MAX)
        except InvalidCommandError as error:
            raise DefinitionError(f"Concurrency: {error}") from None
    if len({(one.key, one.by) for one in levels}) < len(levels):
        raise DefinitionError(
            "Concurrency: two limits within each other have the same key or attribute; leave out the higher one"
        )


CONCURRENCY: Final = an("a Concurrency(...)", Concurrency)


def _check_key(key: object, by: object) -> None:
    if (key is None) == (by is None):
        raise DefinitionError(
            "Concurrency takes either a key, such as Concurrency('customer 17'), or the name of an attribute of the "
            "runs, such as Concurrency(by='customer')"
        )
    if key is not None:
        _check("key", key, _TEXT)
    else:
        _check("by", by, Wanted(f"the name of an attribute, {_TEXT.words}", _TEXT.test))


def _check(option: str, value: object, wanted: Wanted) -> None:
    if not wanted.test(value):
        raise DefinitionError(f"Concurrency: {option} is {shown(value)}; it must be {wanted.words}")
