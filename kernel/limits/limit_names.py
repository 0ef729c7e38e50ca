"""The names of limits that can be changed while running: what each kind of name stands for, and which lines it has."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs

from holdfast.kernel.commands.names import NAME_MAX, text_fault
from holdfast.kernel.limits.concurrency import short_text
from holdfast.kernel.limits.levels import PATH_MAX
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.limits import LimitName
from holdfast.ports.searches import SlotPlace, Waiting

GIVEN_MAX: Final = 1_000
"""Longest name of a limit as it is given, in characters. A long text of an attribute becomes its hash."""
_HASH: Final = re.compile("#[0-9a-f]{64}")


class LimitKind(StrEnum):
    """The kinds of names, which each name begins with."""

    RUN = "run"
    """The runs with a concurrency key."""
    RUN_RATE = "run-rate"
    """The starts of runs that share a rate: those of a workflow, or of all whose rates have a name."""
    STAGE = "stage"
    """The bodies of a stage with `max_concurrency` or a rate limit of its own."""
    STEP = "step"
    """The calls of a step with `max_concurrency` or a rate limit of its own, in any workflow."""
    SLOTS = "slots"
    """What shares slots with a name (`Slots`)."""
    RATE = "rate"
    """What shares a rate limit with a name."""
    QUEUE = "queue"
    """The jobs of a queue, which can be paused."""


FORMS: Final[Mapping[LimitKind, str]] = {
    LimitKind.RUN: "run:<concurrency key>",
    LimitKind.STAGE: "stage:<workflow>/<stage>",
    LimitKind.STEP: "step:<step>",
    LimitKind.SLOTS: "slots:<name of the slots>",
    LimitKind.RATE: "rate:<name of the rate>",
    LimitKind.RUN_RATE: "run-rate:<workflow or name of the rate>",
    LimitKind.QUEUE: "queue:<queue>",
}
_FORMS: Final = ", ".join(FORMS.values())
_PARTS: Final = {
    LimitKind.STAGE: 2,
    LimitKind.STEP: 1,
    LimitKind.SLOTS: 1,
    LimitKind.RATE: 1,
    LimitKind.RUN_RATE: 1,
}
"""How many names come before the text of an attribute."""


@attrs.frozen
class ParsedLimit:
    """A name of a limit, taken apart."""

    kind: LimitKind
    names: tuple[str, ...]
    """The concurrency key, the workflow and the stage, the step, the name of the slots or the rate, or the queue."""
    text: str | None = None
    """The text of the attribute that distinguishes the line, as it is in keys; None: all lines."""

    @property
    def name(self) -> str:
        """The name as it is stored and printed."""
        parts = self.names if self.text is None else (*self.names, self.text)
        return f"{self.kind.value}:{'/'.join(parts)}"

    @property
    def waiting(self) -> Waiting:
        """What waits in its lines."""
        match self.kind:
            case LimitKind.RUN:
                return Waiting.RUNS
            case LimitKind.RUN_RATE:
                return Waiting.RATED_RUNS
            case _:
                return Waiting.JOBS

    @property
    def key(self) -> str | None:
        """The concurrency key of its only line, or of the line without an attribute; None for a rate or a queue."""
        match self.kind:
            case LimitKind.RUN:
                return self.names[0]
            case LimitKind.STAGE:
                return "/".join(self.names if self.text is None else (*self.names, self.text))
            case LimitKind.STEP | LimitKind.RUN_RATE:
                return self.name
            case LimitKind.SLOTS:
                return f"/{'/'.join(self.names if self.text is None else (*self.names, self.text))}"
            case LimitKind.RATE | LimitKind.QUEUE:
                return None

    @property
    def start(self) -> str:
        """What the concurrency keys begin with that have an attribute or, of a rate, a period."""
        match self.kind:
            case LimitKind.RATE:
                return f"/{self.names[0]}~"
            case LimitKind.STAGE:
                return f"{'/'.join(self.names)}/"
            case LimitKind.SLOTS:
                return f"/{self.names[0]}/"
            case LimitKind.RUN_RATE:
                return f"{self.kind.value}:{self.names[0]}/"
            case _:
                return f"step:{self.names[0]}/"

    def has_line(self, key: str) -> bool:
        """Whether a concurrency key of jobs is one of its lines."""
        return self.name in names_of_line(key)


def parsed_limit(text: str) -> ParsedLimit:
    """Return a name of a limit, taken apart. InvalidCommandError, with what to write instead."""
    kind_text, colon, key = text.partition(":")
    kind = next((one for one in LimitKind if one.value == kind_text), None)
    if kind is None or not colon:
        raise InvalidCommandError(f"{text[:100]!r} is not the name of a limit; write one of {_FORMS}")
    if fault := text_fault(text, GIVEN_MAX):
        raise InvalidCommandError(f"{text[:100]!r} is not the name of a limit: {fault}")
    if kind is LimitKind.RUN:
        return ParsedLimit(kind, (_part(text, kind, key, PATH_MAX),))
    if kind is LimitKind.QUEUE:
        return ParsedLimit(kind, (_part(text, kind, key, NAME_MAX),))
    many = _PARTS[kind]
    parts = key.split("/", many)
    if len(parts) < many:
        raise InvalidCommandError(
            f"{text[:100]!r} names no stage: write {FORMS[kind]}, such as stage:books/translate"
        )
    names = tuple(_part(text, kind, part, NAME_MAX) for part in parts[:many])
    return ParsedLimit(kind, names, _text_in_key(parts[many]) if len(parts) > many else None)


def _text_in_key(text: str) -> str:
    """Return the text of an attribute as it is in keys. "" stands for runs without it; a hash is what is printed."""
    return text if not text or _HASH.fullmatch(text) else short_text(text)


def _part(text: str, kind: LimitKind, part: str, most: int) -> str:
    if fault := text_fault(part, most, 1):
        what = "it is empty" if not part else fault
        raise InvalidCommandError(f"{text[:100]!r} is not the name of a limit ({FORMS[kind]}): {what}")
    return part


def names_of_line(key: str) -> Sequence[str]:
    """Return the names of limits that are about a concurrency key of jobs, the most specific first."""
    if key.startswith("/"):
        line, slash, text = key[1:].partition("/")
        rate, tilde, _ = line.rpartition("~")
        name = f"{LimitKind.RATE.value}:{rate}" if tilde else f"{LimitKind.SLOTS.value}:{line}"
        return (f"{name}/{text}", name) if slash else (name,)
    if key.startswith((f"{LimitKind.STEP.value}:", f"{LimitKind.RUN_RATE.value}:")):
        name, slash, _ = key.partition("/")
        return (key, name) if slash else (key,)
    parts = key.split("/", 2)
    whole = f"{LimitKind.STAGE.value}:{'/'.join(parts[:2])}"
    return (f"{LimitKind.STAGE.value}:{key}", whole) if len(parts) > 2 else (whole,)


def names_of_place(place: SlotPlace, waiting: Waiting) -> tuple[LimitName, ...]:
    """Return the names of the limits of a concurrency key, the most specific first."""
    if waiting is Waiting.RUNS:
        return (LimitName(place.namespace, f"{LimitKind.RUN.value}:{place.key}"),)
    return tuple(LimitName(place.namespace, name) for name in names_of_line(place.key))
