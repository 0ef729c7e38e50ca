"""Frozen classes of which many are made: checkers see that nobody changes them, and nothing else has to.

attrs sets each field of a frozen instance by a call, which takes two to three times as long as to make one that is not.
"""

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from attrs import evolve, frozen

    __all__ = ["evolve", "frozen"]
else:

    def frozen(cls=None, *, eq=True, **options):  # checkers read the other one
        """Make a class as `attrs.frozen` does, without the refusal to set a field."""
        # What compares by its fields has their hash, as it would if it were frozen.
        return attrs.define(cls, eq=eq, unsafe_hash=True if eq else None, **options)

    def evolve(record, **changes):
        """Make a record that differs in these fields, as `attrs.evolve` does, in a third of its time.

        All of its fields are public, and given to what makes it.
        """
        kind = type(record)
        names, values_of = _fields_of(kind)
        return kind(**{**dict(zip(names, values_of(record), strict=True)), **changes})

    @cache
    def _fields_of(kind):
        names = tuple(field.name for field in attrs.fields(kind))
        return names, attrgetter(*names)
