"""Actors: who issues commands and writes annotations."""

from typing import Final, cast

import attrs

from holdfast.ports.validation import TEXT, an, check


def _text(_: object, field: "attrs.Attribute[str]", value: object) -> None:
    check("Actor", TEXT, **{field.name: value})


@attrs.frozen
class Actor:
    """Who issues a command, or writes an annotation.

    Attributes:
        kind: For example `user`, `service` or `stage`.
        id: Identifies the actor among those of that kind.
        version: The actor's version, if that matters.

    Raises:
        InvalidArgumentError: One of these is not a string.
    """

    kind: str = attrs.field(default="", validator=_text)
    id: str = attrs.field(default="", validator=_text)
    version: str = attrs.field(default="", validator=_text)

    @property
    def text(self) -> str:
        """The actor for people: `user ann`."""
        return " ".join(part for part in (self.kind, self.id, self.version) if part)

    @property
    def data(self) -> dict[str, str]:
        """The parts that are not empty, by name: the actor in JSON."""
        parts = {"kind": self.kind, "id": self.id, "version": self.version}
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def of(cls, data: object) -> "Actor":
        """Return the actor that `data` returned. Raises TypeError, or ValueError for a part that is not a string."""
        if not isinstance(data, dict):
            raise TypeError(f"expected a JSON object with the parts of an actor, got {data!r:.80}")
        return cls(**cast("dict[str, str]", data))


ACTOR: Final = an("an Actor(kind, id)", Actor)
"""The check for an argument that is an actor."""
