"""A cattrs converter that accepts exact types only: `5` is not a name, and `true` is not a number."""

from collections.abc import Callable
from typing import Any, get_origin

import cattrs


def strict_converter(
    *, forbid_extra_keys: bool, detailed_validation: bool, omit_defaults: bool = False
) -> cattrs.Converter:
    """Return a new converter of frozen classes and JSON data, for the caller to add hooks to.

    Args:
        forbid_extra_keys: Whether data with a field that the class does not have is refused.
        detailed_validation: Whether errors list every fault with its path; takes longer.
        omit_defaults: Whether fields that have their default are left out of the data.
    """
    converter = cattrs.Converter(
        forbid_extra_keys=forbid_extra_keys,
        detailed_validation=detailed_validation,
        omit_if_default=omit_defaults,
    )
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    tuple_of_anything = converter.get_structure_hook(tuple[object, ...])

    def structure_list(value: object, wanted: type) -> object:
        """Accept a JSON list only, not other iterables: a string, an object's keys."""
        if not isinstance(value, list | tuple):
            raise TypeError(f"expected list, got {value!r:.80}")
        return tuple_of_anything(value, wanted)

    converter.register_structure_hook_func(_is_tuple, structure_list)
    return converter


def _exactly(kind: type) -> Callable[[object, type], object]:
    """Accept values of exactly this type."""

    def structure(value: object, wanted: type) -> object:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")
        return value if wanted is kind else wanted(value)  # the string enums are strings too

    return structure


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple
