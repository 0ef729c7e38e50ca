"""What is said of runs, in the words of users: how it is said, and how it is asked for."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, TypedDict, cast

import attrs

from holdfast.hosts.inspection.filters import (
    check_names,
    instant_option,
    number_option,
    place_option,
    text_option,
)
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import NamedValue, RunAnnotate
from holdfast.kernel.values import encode
from holdfast.ports.attempt_output import Actor, Annotation, Scope
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.run_output import AnnotationFilter, AnnotationsOf
from holdfast.ports.validation import TEXT, Wanted, an, check, integer

_PAGE: Final = 200


class AnnotateOptions(TypedDict, total=False):
    """How something is said of a run.

    Attributes:
        actor: Who says it.
        reason: Why, for people.
        key: Say it once: of a name that was said of the run under this key before, nothing is stored.
        stage: Say it of this stage, and not of the run.
        item: Say it of this item of the stage, which is mapped.
    """

    actor: Actor
    reason: str
    key: str | None
    stage: str | None
    item: int | None


class AnnotationOptions(TypedDict, total=False):
    """Which annotations of a run are asked for. All that is given must be true of one.

    Attributes:
        name: Of this name.
        prefix: Of a name that begins so.
        actor_kind: Said by an actor of this kind.
        actor_id: Said by this actor.
        scope: Of a run, a stage, an item or an attempt.
        stage: Said of this stage, of its items or its attempts.
        item: Said of this item, or of its attempts.
        since: Said at this instant or later. Aware.
        until: Said before this instant. Aware.
        after: Begin after this place: the `cursor` of an `AnnotationInfo`.
        limit: How many at most, 1 or more; all if left out.
    """

    name: str | None
    prefix: str | None
    actor_kind: str | None
    actor_id: str | None
    scope: Scope | str | None
    stage: str | None
    item: int | None
    since: datetime | None
    until: datetime | None
    after: str | None
    limit: int | None


@attrs.frozen(kw_only=True)
class AnnotationInfo:
    """Something that was said of a run.

    Attributes:
        value: Plain JSON.
        scope: What it is about: the run, a stage, an item, or an attempt.
        stage: Which stage, if it is about one.
        item: Which item, if it is about one.
        actor: Who said it.
        epoch: Which attempt of the stage said it, by the number of its lease; None if none did.
        cursor: Its place in the list: give it to `annotations(after=...)` for those that follow. Opaque.
    """

    name: str
    value: object
    at: datetime
    scope: Scope
    stage: str | None
    item: int | None
    actor: Actor
    reason: str
    key: str | None
    epoch: int | None
    cursor: str


_OPTION_KINDS: Final[Mapping[str, Wanted]] = {
    "actor": an("an Actor(kind, id)", Actor).or_none,
    "reason": TEXT.or_none,
    "key": TEXT.or_none,
    "stage": TEXT.or_none,
    "item": integer(0).or_none,
}


def named_values(values: Mapping[str, object]) -> tuple[NamedValue, ...]:
    """Return what is said as commands have it. UnstorableValueError, InvalidCommandError."""
    return tuple(NamedValue(name=name, value=encode(value, object)) for name, value in values.items())


def annotate_command(
    namespace: str, run_id: str, values: Mapping[str, object], options: AnnotateOptions
) -> RunAnnotate:
    """Return the command that says something of a run. InvalidArgumentError if an argument is of another kind."""
    given = cast("dict[str, object]", options)
    check_names(given, AnnotateOptions, "annotate")
    check("annotate", an("a dict of what is said by names", Mapping), said=values)
    for option, kind in _OPTION_KINDS.items():
        check("annotate", kind, **{option: given.get(option)})
    return RunAnnotate(namespace=namespace, run_id=run_id, annotations=named_values(values), **options)


def annotations_of(core: Core, run: str, options: AnnotationOptions) -> Iterator[AnnotationInfo]:
    """Yield what was said of a run, oldest first, read some at a time. Options are checked at once."""
    given = cast("dict[str, object]", options)
    check_names(given, AnnotationOptions, "annotations")
    which = AnnotationFilter(
        name=text_option(given, "name"),
        prefix=text_option(given, "prefix"),
        actor_kind=text_option(given, "actor_kind"),
        actor_id=text_option(given, "actor_id"),
        scope=_scope(given.get("scope")),
        node=text_option(given, "stage"),
        item=number_option(given, "item", 0),
        since=instant_option(given, "since"),
        until=instant_option(given, "until"),
    )
    return _listed(core, run, which, place_option(given), number_option(given, "limit", 1))


def _listed(
    core: Core, run: str, which: AnnotationFilter, after: ListPlace | None, left: int | None
) -> Iterator[AnnotationInfo]:
    while left is None or left > 0:
        page = _PAGE if left is None else min(_PAGE, left)
        found = core.stores.persistence.read(AnnotationsOf(run, which, after=after, limit=page))
        yield from map(annotation_info, found)
        if len(found) < page:
            return
        after, left = found[-1].place, None if left is None else left - page


def annotation_info(annotation: Annotation) -> AnnotationInfo:
    """Return an annotation as users see it."""
    return AnnotationInfo(
        name=annotation.name,
        value=parse(annotation.value),
        at=instant(annotation.at),
        scope=annotation.scope,
        stage=annotation.node,
        item=annotation.item,
        actor=Actor(annotation.actor_kind, annotation.actor_id, annotation.actor_version),
        reason=annotation.reason,
        key=annotation.key,
        epoch=annotation.epoch,
        cursor=annotation.place.text,
    )


def _scope(value: object) -> Scope | None:
    if value is None:
        return None
    try:
        return Scope(cast("str", value))
    except ValueError:
        known = ", ".join(scope.value for scope in Scope)
        raise InvalidFilterError("scope", f"is {value!r}; it is one of {known}") from None
