"""Concurrency limits within each other: the levels of a run, its key, and which keys wait around a free slot.

The key of a run has all its levels, `all :: tenant/ann :: user/bob`, so each level is a beginning of it, and the runs
of a level are found by one index (docs/decisions/0088).
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.kernel.commands.names import CONCURRENCY_KEY_MAX, check_name
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.limits import (
    BETWEEN_LEVELS,
    BEYOND_LEVEL,
    LEVELS_MAX,
    ConcurrencyPlan,
    LimitName,
    LimitRow,
    OuterLevel,
    SlotName,
    levels_of,
    run_limit,
)
from holdfast.ports.records.run import Run, attribute_texts
from holdfast.ports.searches import KeySpan, SlotPlace, WaitedFor
from holdfast.ports.structs import evolve

LEVEL_KEY_MAX: Final = 128
"""Longest key of a level within another one, in characters."""
PATH_MAX: Final = CONCURRENCY_KEY_MAX + (LEVELS_MAX - 1) * (LEVEL_KEY_MAX + len(BETWEEN_LEVELS))
"""Longest concurrency key with all its levels, in characters."""
CONCURRENCY_LIMIT_MAX: Final = 1_000_000
"""Highest concurrency limit of runs."""
_AFTER: Final = "\x01"
"""Added to a key, it is the first text after it: no key has a control character."""


class LevelLimit(NamedTuple):
    """One level of a start: its own key, and how many runs may be under way within it."""

    key: str
    limit: int


def nested_levels(plan: ConcurrencyPlan, workflow: str, attributes: str | None) -> tuple[LevelLimit, ...]:
    """Return the levels of a run with these attributes, which are JSON text, the outermost first.

    A level by an attribute that the run lacks is left out. The outermost one has the key
    `<workflow>/<attribute>/<text>`; within another level, that one is what tells keys apart, and it is
    `<attribute>/<text>`. A text that is too long, or that no key can have, counts by its hash.
    """
    found: list[LevelLimit] = []
    texts = attribute_texts(attributes)
    for level in (*plan.within, OuterLevel(key=plan.key, by=plan.by, limit=plan.limit)):
        key = level.key if level.by is None else _key_by(level.by, texts, "" if found else f"{workflow}/")
        if key is not None:
            found.append(LevelLimit(key, level.limit))
    return tuple(found)


def _key_by(by: str, texts: Mapping[str, str], scope: str) -> str | None:
    text = texts.get(by)
    if text is None:
        return None
    key = f"{scope}{by}/{text}"
    most = CONCURRENCY_KEY_MAX if scope else LEVEL_KEY_MAX
    if len(key) <= most and key.isprintable() and BETWEEN_LEVELS not in key:
        return key
    line = f"{by}/{text}".encode(errors="surrogatepass")
    return f"{scope}#{hashlib.sha256(line).hexdigest()}"


def is_innermost_there(plan: ConcurrencyPlan, attributes: str | None) -> bool:
    """Return whether a run has the innermost level, which is the one that bounds starts."""
    return plan.by is None or plan.by in attribute_texts(attributes)


def path_of(levels: Iterable[LevelLimit]) -> str:
    """Return the concurrency key of a run with these levels."""
    return BETWEEN_LEVELS.join(level.key for level in levels)


def check_levels(key: str | None, within: Sequence[OuterLevel]) -> None:
    """Raise InvalidCommandError for keys and limits of levels that can't be."""
    if key is None and not within:
        return
    if len(within) >= LEVELS_MAX:
        raise InvalidCommandError(
            f"concurrency_within has {len(within)} limits; with the innermost one, a start is under at most "
            f"{LEVELS_MAX}"
        )
    for level in within:
        if level.key is None or level.by is not None:
            raise InvalidCommandError("a limit of concurrency_within needs a key; `by` is for workflows")
        check_limit_number("the limit of concurrency_within", level.limit)
    for place, one in enumerate((*(level.key for level in within), key)):
        if one is not None:
            check_level_key(one, CONCURRENCY_KEY_MAX if place == 0 else LEVEL_KEY_MAX)


def check_level_key(key: str, most: int) -> None:
    """Raise InvalidCommandError unless this can be a concurrency key, or a level of one."""
    check_name("the concurrency key", key)
    if not 0 < len(key) <= most:
        where = "" if most == CONCURRENCY_KEY_MAX else " within another one"
        raise InvalidCommandError(f"a concurrency key{where} has 1 to {most} characters, not {len(key)}")
    if BETWEEN_LEVELS in key:
        raise InvalidCommandError(
            f"the concurrency key {key!r} contains {BETWEEN_LEVELS!r}, which separates limits within each other: use "
            "another key, or give the outer limits as `within`"
        )


def check_limit_number(what: str, limit: int) -> None:
    """Raise InvalidCommandError for a limit out of range."""
    if not 1 <= limit <= CONCURRENCY_LIMIT_MAX:
        raise InvalidCommandError(f"{what} is {limit}; it must be from 1 to {CONCURRENCY_LIMIT_MAX}")


def level_limits(rows: Mapping[LimitName, LimitRow], run: Run) -> tuple[tuple[SlotName, int], ...]:
    """Return the slots that a run needs, the outermost first, each with the limit in force.

    ValueError if its outer limits are damaged.
    """
    slots, outer = run.slots, run.outer_limits
    if not slots:
        return ()
    if len(outer) != len(slots) - 1:
        raise ValueError(f"{len(outer)} outer limits do not fit {len(slots)} levels")
    limits = (*outer, run.concurrency_limit or 0)
    if not rows:
        return tuple(zip(slots, limits, strict=True))
    names = (run_limit(run.namespace, level) for level in levels_of(run.concurrency_key or ""))
    return tuple(
        (slot, _in_force(rows, name, limit)) for slot, name, limit in zip(slots, names, limits, strict=True)
    )


def with_outer_in_force(rows: Mapping[LimitName, LimitRow], one: WaitedFor) -> WaitedFor:
    """Return a concurrency key that is waited for with the outer limits in force in place of those of its waiter."""
    if not one.outer:
        return one
    names = (run_limit(place.namespace, place.key) for place in level_places(one.place)[:-1])
    outer = (_in_force(rows, name, limit) for name, limit in zip(names, one.outer, strict=False))
    return evolve(one, outer=tuple(outer))


def _in_force(rows: Mapping[LimitName, LimitRow], name: LimitName, limit: int) -> int:
    row = rows.get(name)
    return limit if row is None or row.slots is None else row.slots


# What waits around a free slot ----------------------------------------------------------------------------------


def level_places(place: SlotPlace) -> tuple[SlotPlace, ...]:
    """Return the places of all levels of a concurrency key, the outermost first."""
    return tuple(SlotPlace(place.namespace, level) for level in levels_of(place.key))


def spans_around(namespace: str, keys: Iterable[str]) -> tuple[KeySpan, ...]:
    """Return where the runs wait that a slot of these keys may let in: under the same outermost levels.

    A span of keys is cut after a key, and what comes before it is a second one: if more keys wait than a search looks
    at, they take turns, because each end of a run looks at those after its own key first.
    """
    by_root: dict[str, str] = {}
    for key in sorted(keys, reverse=True):
        by_root[levels_of(key)[0]] = key
    return tuple(
        span
        for root, key in sorted(by_root.items())
        for within in spans_within(SlotPlace(namespace, root))
        for span in _cut(within, key)
    )


def spans_within(root: SlotPlace) -> tuple[KeySpan, KeySpan]:
    """Return the spans of an outermost key itself and of all keys within it."""
    namespace, key = root
    return (
        KeySpan(namespace, key, f"{key}{_AFTER}"),
        KeySpan(namespace, f"{key}{BETWEEN_LEVELS}", f"{key}{BEYOND_LEVEL}"),
    )


def _cut(span: KeySpan, key: str) -> Iterator[KeySpan]:
    after = f"{key}{_AFTER}"
    if span.first < after < span.beyond:
        yield span._replace(beyond=after)
        yield span._replace(first=after)
    else:
        yield span


def remaining_spans(spans: Iterable[KeySpan], found: Sequence[WaitedFor], limit: int) -> tuple[KeySpan, ...]:
    """Return the parts of spans that a search has not read, which has found `limit` keys of each at most."""
    remaining: list[KeySpan] = []
    for span in spans:
        keys = [
            one.place.key
            for one in found
            if one.place.namespace == span.namespace and span.first <= one.place.key < span.beyond
        ]
        if len(keys) >= limit > 0:
            remaining.append(span._replace(first=f"{max(keys)}{_AFTER}"))
    return tuple(remaining)


def spans_with_capacity(
    spans: Iterable[KeySpan],
    found: Iterable[WaitedFor],
    used: Mapping[SlotPlace, int],
    wanted: Mapping[SlotPlace, int],
) -> tuple[KeySpan, ...]:
    """Return the spans whose outermost level has more free slots than the first runs of the wanted keys take."""
    chosen = Counter(level_places(place)[0] for place in wanted)
    limits: Counter[SlotPlace] = Counter()
    for one in found:
        if one.outer:
            root = level_places(one.place)[0]
            limits[root] = max(limits[root], one.outer[0])
    roots = ((span, SlotPlace(span.namespace, levels_of(span.first)[0])) for span in spans)
    return tuple(span for span, root in roots if used.get(root, 0) + chosen[root] < limits[root])


def slots_by_level(holders: Mapping[SlotPlace, int]) -> Counter[SlotPlace]:
    """Return how many slots are taken at each level, by the numbers of runs that hold slots by their keys."""
    used: Counter[SlotPlace] = Counter()
    for place, number in holders.items():
        used.update(dict.fromkeys(level_places(place), number))
    return used


def wanted_runs(
    found: Sequence[WaitedFor], used: Mapping[SlotPlace, int], left: int
) -> Mapping[SlotPlace, int]:
    """Return how many waiting runs to look at of each key: enough to fill every level, `left` at most.

    Under one outermost level, the key whose first run has the lowest rank comes first. A key is left out once a level
    of it is full, counting the first runs of the keys before it. Of the others, as many are looked at as any of their
    levels has room for, so that the runs can be admitted strictly by rank.
    """
    wanted: dict[SlotPlace, int] = {}
    most_of: dict[SlotPlace, int] = {}
    by_root: dict[SlotPlace, list[WaitedFor]] = {}
    for one in found:
        by_root.setdefault(level_places(one.place)[0], []).append(one)
    for keys in by_root.values():
        taken: dict[SlotPlace, int] = {}
        full: set[SlotPlace] = set()
        for one in sorted(keys, key=lambda one: (one.position, one.place)):
            levels = _capacities(one, used)
            most = min(free for _, free in levels)
            blocked = {place for place, free in levels if taken.get(place, 0) >= free}
            if blocked or any(place in full for place, _ in levels):
                full |= blocked
                continue
            for place, _ in levels:
                taken[place] = taken.get(place, 0) + 1
            most_of[one.place] = most
    for place in most_of:
        if left > 0:
            wanted[place] = 1
            left -= 1
    for place in wanted:
        more = min(most_of[place] - 1, left)
        wanted[place] += more
        left -= more
    return wanted


def _capacities(one: WaitedFor, used: Mapping[SlotPlace, int]) -> list[tuple[SlotPlace, int]]:
    """Return the free slots of each level of a key. Levels whose limits are damaged are left to the decision."""
    *around, own = level_places(one.place)
    if not around or len(around) != len(one.outer):
        return [(own, one.free or 0)]
    limits = zip((*around, own), (*one.outer, one.limit or 0), strict=True)
    return [(place, max(0, limit - used.get(place, 0))) for place, limit in limits]
