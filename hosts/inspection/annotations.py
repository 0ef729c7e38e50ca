"""Annotations of a run: writing and listing them."""

from collections.abc import Iterator, Mapping, Sequence
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
from holdfast.hosts.wiring.pages import pages_of, place_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import NewAnnotation, RunAnnotate
from holdfast.kernel.values.annotation_values import encode_annotation
from holdfast.ports.actors import ACTOR, Actor
from holdfast.ports.attempt_output import Annotation, AnnotationScope
from holdfast.ports.clock import instant
from holdfast.ports.errors import InvalidFilterError
from holdfast.ports.json import parse
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.run_output import AnnotationFilter, AnnotationsOf
from holdfast.ports.validation import TEXT, Wanted, an, check, integer

_PAGE: Final = 200


class AnnotateOptions(TypedDict, total=False):
    """Options of `annotate`.

    Attributes:
        actor: The author.
        reason: Why, for people.
        key: Annotate only once under this key: a repeated call stores nothing.
        stage: Annotate this stage instead of the run.
        item: Annotate this item of the mapped stage.
    """

    actor: Actor
    reason: str
    key: str | None
    stage: str | None
    item: int | None


class AnnotationOptions(TypedDict, total=False):
    """Filters for the annotations of a run. An annotation must match all of them.

    Attributes:
        name: With this name.
        prefix: With a name that starts with this.
        actor_kind: By an author of this kind.
        actor_id: By the author with this id.
        scope: About a run, a stage, an item or an attempt.
        stage: About this stage, its items or its attempts.
        item: About this item or its attempts.
        since: Created at this instant or later. Aware.
        until: Created before this instant. Aware.
        after: Start after this position: the `cursor` of an `AnnotationInfo`.
        limit: The maximum number, at least 1; no limit if omitted.
    """

    name: str | None
    prefix: str | None
    actor_kind: str | None
    actor_id: str | None
    scope: AnnotationScope | str | None
    stage: str | None
    item: int | None
    since: datetime | None
    until: datetime | None
    after: str | None
    limit: int | None


@attrs.frozen(kw_only=True)
class AnnotationInfo:
    """An annotation of a run."""

    name: str
    """Its name."""
    value: object
    """A JSON value."""
    at: datetime
    """When it was created; aware, in UTC."""
    scope: AnnotationScope
    """What it is about: the run, a stage, an item or an attempt."""
    stage: str | None
    """The stage that it is about, if any."""
    item: int | None
    """The index of the map item that it is about, if any."""
    actor: Actor
    """The author."""
    reason: str
    """Why it was made, for people; "" if no reason was given."""
    key: str | None
    """The key that it was stored under, if any."""
    epoch: int | None
    """The epoch of the attempt that created it; None if no attempt did."""
    cursor: str
    """An opaque position; pass it to `annotations(after=...)` to list the annotations that follow."""


_OPTION_KINDS: Final[Mapping[str, Wanted]] = {
    "actor": ACTOR.or_none,
    "reason": TEXT.or_none,
    "key": TEXT.or_none,
    "stage": TEXT.or_none,
    "item": integer(0).or_none,
}


def named_values(values: Mapping[str, object]) -> tuple[NewAnnotation, ...]:
    """Return annotations as commands carry them. Raises UnstorableValueError or InvalidCommandError."""
    return tuple(NewAnnotation(name=name, value=encode_annotation(value)) for name, value in values.items())


def annotate_command(
    namespace: str, run_id: str, values: Mapping[str, object], options: AnnotateOptions
) -> RunAnnotate:
    """Return the command that annotates a run. Raises InvalidArgumentError for an argument of the wrong type."""
    given = cast("dict[str, object]", options)
    check_names(given, AnnotateOptions, "annotate")
    check("annotate", an("a dict of annotations by name", Mapping), said=values)
    for option, kind in _OPTION_KINDS.items():
        check("annotate", kind, **{option: given.get(option)})
    return RunAnnotate(namespace=namespace, run_id=run_id, annotations=named_values(values), **options)


def annotations_of(core: Core, run: str, options: AnnotationOptions) -> Iterator[AnnotationInfo]:
    """Return the annotations of a run, oldest first, read page by page. Options are checked at once.

    Raises InvalidFilterError or InvalidArgumentError.
    """
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

    def read(after: ListPlace | None, limit: int) -> Sequence[Annotation]:
        return core.stores.persistence.read(AnnotationsOf(run, which, after=after, limit=limit))

    pages = pages_of(read, _PAGE, place_option(given), number_option(given, "limit", 1), place_of)
    return (annotation_info(one) for page in pages for one in page)


def annotation_info(annotation: Annotation) -> AnnotationInfo:
    """Return the public form of an annotation."""
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


def _scope(value: object) -> AnnotationScope | None:
    if value is None:
        return None
    try:
        return AnnotationScope(cast("str", value))
    except ValueError:
        known = ", ".join(scope.value for scope in AnnotationScope)
        raise InvalidFilterError("scope", f"is {value!r}; it is one of {known}") from None
