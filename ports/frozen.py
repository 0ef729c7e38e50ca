"""Frozen classes of which many are made: checkers see that nobody changes them, and nothing else has to.

attrs sets each field of a frozen instance by a call, which takes two to three times as long as to make one that is not.
"""

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from attrs import frozen

    __all__ = ["frozen"]
else:

    def frozen(cls=None, *, eq=True, **options):  # checkers read the other one
        """Make a class as `attrs.frozen` does, without the refusal to set a field."""
        # What compares by its fields has their hash, as it would if it were frozen.
        return attrs.define(cls, eq=eq, unsafe_hash=True if eq else None, **options)
