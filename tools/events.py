"""Write the types of events and their data, as their classes describe them: `python -m tools.events`."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Final, NamedTuple

import attrs

from holdfast.kernel.history import events

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/reference/events.md"
START: Final = "## Types\n"
"""Where the generated part of the page begins. It ends with the page."""

LINKS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "run.continued": (("new generation", "../howto/continue-as-new.md"),),
    "run.history_long": (
        ("end or continue as new", "../howto/upgrade-functions.md#how-long-a-history-may-get"),
    ),
    "stage.started": (("another pipeline", "../howto/child-pipelines.md"),),
    "stage.tested": (("`when`", "../howto/branches.md"),),
    "stage.suspended": (("external work", "../howto/external-work.md"),),
    "stage.failed": (("map that tolerates failures", "../howto/partial-maps.md"),),
    "stage.cancelled": (("Abandoned external work", "../howto/external-work.md#cancel-external-work"),),
    "stage.cancel_failed": (("Abandoned external work", "../howto/external-work.md#cancel-external-work"),),
    "start.received": (("`run.create` command", "commands.md#runcreate"),),
    "step.queued": (("a queue", "../howto/queued-steps.md"),),
    "result.refused": (("compensates", "../howto/sagas.md"),),
    "update.received": (
        ("An update", "../howto/queries.md"),
        ("continued as new", "../howto/continue-as-new.md"),
    ),
    "value.published": (("publishes a value", "../howto/queries.md#published-values"),),
    "signal.received": (("did not receive it", "../howto/signals.md#messages-that-a-run-has-not-received"),),
    "user.<type>": (("published", "../howto/events.md#publish-your-own-events"),),
}
"""The words of an event's description that link to another page."""

_JSON_TYPES: Final = {
    "str": "string",
    "int": "integer",
    "bool": "boolean",
    "Micros": "microseconds",
    "tuple[int, ...]": "array of integers",
    "tuple[str, ...]": "array of strings",
    "Mapping[str, object]": "object",
    "RecordedError": "[error](#errors)",
    "Actor": "[actor](#actors)",
}
_NOT_STORED: Final = (
    ("user.<type>", "A stage published it. `data` is what it published."),
    (
        "event.skipped",
        "An operator skipped the event of this number, for this sink. It is not in the history.",
    ),
)
"""Types of events that have no class of their own."""
_SKIPPED_DATA: Final = (
    ("type", "string", "The type of the skipped event."),
    ("reason", "string", "The reason that was given."),
    ("actor", "[actor](#actors), optional", "Who skipped it; left out: unknown."),
)
_ACTOR_DATA: Final = (
    ("kind", "string, optional", "For example `user` or `service`."),
    ("id", "string, optional", "Identifies the actor among those of that kind."),
    ("version", "string, optional", "The actor's version, if that matters."),
)


class Field(NamedTuple):
    """A field of an event's data."""

    name: str
    """Its name in the JSON object."""
    type: str
    meaning: str


def page(text: str) -> str:
    """Return the page with its generated part written anew."""
    head, start, _ = text.partition(START)
    if not start:
        raise ValueError(f"the page has no heading {START.strip()!r}")
    return "\n".join([head + start, *_generated(), ""])


def fields_of(cls: type[attrs.AttrsInstance]) -> Iterator[Field]:
    """Yield the fields of a class, its own before inherited ones. ValueError if one is not described."""
    hidden: frozenset[str] = getattr(cls, "hidden", frozenset())
    names: Mapping[str, str] = getattr(cls, "json_names", {})
    known = attrs.fields_dict(cls)
    for owner in inspect.getmro(cls)[:-1]:
        for name, annotation, meaning in _described(owner):
            if name in hidden or name not in known:
                continue
            if not meaning:
                raise ValueError(f"{owner.__name__}.{name} has no docstring")
            is_optional = known[name].default is not attrs.NOTHING
            yield Field(
                names.get(name, name),
                _json_type(annotation, is_optional=is_optional),
                re.sub(r"\bNone(?=[: .])", "left out" if is_optional else "null", meaning),
            )


def _described(cls: type[object]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, annotation and docstring of each annotated name in the body of a class."""
    (definition,) = ast.parse(dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    meaning = _one_line(text)
                case _:
                    meaning = ""
            yield node.target.id, ast.unparse(node.annotation), meaning


def _json_type(annotation: str, *, is_optional: bool) -> str:
    plain = annotation.removesuffix(" | None")
    name = _JSON_TYPES[plain]
    if is_optional:
        return f"{name}, optional"
    return name if plain == annotation else f"{name} or null"


def _generated() -> Iterator[str]:
    described = {kind: _texts(kind, event) for kind, event in events.EVENTS.items()}
    yield "| type | when |"
    yield "|---|---|"
    for kind, (when, *data) in described.items():
        anchor = kind.replace(".", "")
        name = f"[`{kind}`](#{anchor})" if data else f"`{kind}`"
        yield f"| {name} | {when} |"
    for kind, when in _NOT_STORED:
        (linked,) = _with_links(kind, [when])
        yield f"| `{kind}` | {linked} |"
    yield ""
    yield "## Data"
    for kind, (_, *data) in described.items():
        if data:
            yield from ("", f"### `{kind}`", "", *data)
    yield from ("", "### `event.skipped`", "", *_table(Field(*one) for one in _SKIPPED_DATA))
    yield from ("", "### Actors", "", *_table(Field(*one) for one in _ACTOR_DATA))
    yield from ("", "### Errors", "", *_table(fields_of(events.RecordedError)))


def _texts(kind: str, event: type[events.HistoryEvent]) -> list[str]:
    """Return when events of a type are stored, and then the lines about their data."""
    fields = list(fields_of(event))
    texts = [_one_line(event.__doc__ or "")]
    if event.payload is not None:
        texts += [f"Payload: {event.payload}.", ""] if fields else [f"Payload: {event.payload}."]
    if fields:
        texts += _table(fields)
    return _with_links(kind, texts)


def _table(fields: Iterator[Field] | list[Field]) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, kind, meaning in fields:
        yield f"| `{name}` | {kind} | {meaning} |"


def _with_links(kind: str, texts: list[str]) -> list[str]:
    for words, target in LINKS.get(kind, ()):
        place = next((at for at, text in enumerate(texts) if words in text), None)
        if place is None:
            raise ValueError(f"the description of {kind} has no words {words!r} for the link to {target}")
        texts[place] = texts[place].replace(words, f"[{words}]({target})", 1)
    return texts


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
