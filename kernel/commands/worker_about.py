"""The description of a worker in the worker registry, which it sends when it opens a session."""

from typing import Any, Final, cast

import attrs

from holdfast.ports.changes import Change, Insert
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.session import Registration, Session
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

ABOUT_MAX: Final = 8_192
"""Maximum length of the description of a worker as JSON text."""
CONCURRENCY_MAX: Final = 1_000_000


@frozen(kw_only=True)
class ServedQueue:
    """A queue that a worker serves."""

    name: str
    limit: int | None = None
    """How many bodies of this queue it runs at once; None: as many as it runs at all."""


@frozen(kw_only=True)
class WorkerAbout:
    """The description of a worker, for people. No rule depends on it; the server claims what a remote worker lists."""

    name: str
    """Its name, for people."""
    language: str = "python"
    versions: tuple[str, ...] = ()
    """Versions of its programs, such as "holdfast 0.1.0"."""
    queues: tuple[ServedQueue, ...] = ()
    """The queues that it serves."""
    definitions: tuple[str, ...] = ()
    """The code that it has: `<workflow>@<version>`, `step:<name>` for steps, `stage:<name>` for remote stages."""
    has_more: bool = False
    """Whether it serves more queues, or has more code, than fits into the lists."""
    concurrency: int = 1
    """How many bodies it runs at once."""

    def to_json(self) -> str:
        """Return it as canonical JSON text."""
        return canonical(attrs.asdict(self))


def registered(session: Session, about: WorkerAbout | None, lease: Micros) -> tuple[Change, ...]:
    """Return the change that puts a session into the worker registry, or replaces its row; none without `about`."""
    if about is None:
        return ()
    row = Registration(session=session.id, namespace=session.namespace, about=about.to_json(), lease=lease)
    return (Insert(row),)


def about_from(text: str) -> WorkerAbout:
    """Return the description in a stored text; what can't be read of it is left out."""
    try:
        data = parse(text)
    except (ValueError, RecursionError):
        data = None
    known = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    queues = (cast("dict[str, object]", one) for one in _list(known.get("queues")) if isinstance(one, dict))
    return WorkerAbout(
        name=_text(known.get("name")),
        language=_text(known.get("language")),
        versions=_texts(known.get("versions")),
        queues=tuple(map(_queue_from, queues)),
        definitions=_texts(known.get("definitions")),
        has_more=known.get("has_more") is True,
        concurrency=_number(known.get("concurrency")) or 0,
    )


def check_about(_: object, __: "attrs.Attribute[Any]", about: WorkerAbout | None) -> None:
    """A validator of attrs: raises InvalidCommandError for a description that is too long or has absurd numbers."""
    if about is None:
        return
    for number in (about.concurrency, *(queue.limit for queue in about.queues)):
        if number is not None and not 0 <= number <= CONCURRENCY_MAX:
            raise InvalidCommandError(
                f"about says {number} bodies at once; it must be from 0 to {CONCURRENCY_MAX:,}"
            )
    if (length := len(about.to_json())) > ABOUT_MAX:
        raise InvalidCommandError(
            f"about has {length:,} characters as JSON; at most {ABOUT_MAX:,} are possible: shorten its lists and set"
            " has_more"
        )


def _queue_from(data: dict[str, object]) -> ServedQueue:
    return ServedQueue(name=_text(data.get("name")), limit=_number(data.get("limit")))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in _list(value) if isinstance(one, str))
