"""A faster `attrs.frozen` for records of which many are made: type checkers enforce immutability, nothing at runtime.

attrs sets each field of a frozen instance by a call, which takes two to three times as long as for a mutable one, and
its `evolve` looks up every field by name.
"""

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from attrs import evolve, frozen

    __all__ = ["evolve", "frozen"]
else:
    _COPIERS = {}

    def frozen(cls=None, *, eq=True, **options):  # checkers read the import above
        """Define a class as `attrs.frozen` does, except that setting a field is not refused."""
        # Compared by its fields, a record is hashed by them, as a frozen one would be.
        return attrs.define(cls, eq=eq, unsafe_hash=True if eq else None, **options)

    def evolve(record, **changes):
        """Return a copy of a record with some fields changed, as `attrs.evolve` does, in a sixth of the time."""
        made = type(record)
        copier = _COPIERS.get(made, made)
        if copier is made:
            _COPIERS[made] = copier = _copier(made)
        if copier is None:
            return attrs.evolve(record, **changes)
        copy = copier(record)
        for name, value in changes.items():
            setattr(copy, name, value)
        return copy

    def _copier(made):
        """Return a function that copies records of a class; None if creating one does more than set its fields."""
        fields = attrs.fields(made)
        is_plain = (
            made.__setattr__ is object.__setattr__
            and made.__dictoffset__ == 0
            and not any(
                hasattr(made, name)
                for name in ("__attrs_pre_init__", "__attrs_post_init__", "_attrs_cached_hash")
            )
            and all(
                field.init
                and field.validator is None
                and field.converter is None
                and field.name == field.alias
                for field in fields
            )
        )
        if not is_plain:
            return None
        # Generated code with one assignment per field, as attrs generates `__init__`.
        lines = (f"    copy.{field.name} = record.{field.name}" for field in fields)
        code = "\n".join(["def copier(record):", "    copy = new(made)", *lines, "    return copy"])
        names = {"new": object.__new__, "made": made}
        exec(compile(code, f"<copies of {made.__qualname__}>", "exec"), names)  # noqa: S102  # names of fields only
        return names["copier"]
