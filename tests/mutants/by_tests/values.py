"""Planted bugs in the round trip of values and errors."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

VALUE_TESTS: Final = "tests/unit/kernel/test_values.py"
MOMENTS: Final = "tests/unit/kernel/test_datetimes.py"
ERRORS: Final = "tests/unit/kernel/functions/test_recorded_errors.py"

VALUES: Final[tuple[Mutant, ...]] = (
    one_edit(
        "fold-forgotten",
        "of the two wall times of an autumn night the first comes back",
        "kernel/values/zones.py",
        'return f"{text}[{_FOLD}]" if value.fold else text',
        "return text",
        MOMENTS,
    ),
    one_edit(
        "zone-without-its-key",
        "a datetime comes back with the offset of its zone, and not with the zone",
        "kernel/values/zones.py",
        'return f"[{key}]"',
        'return ""',
        MOMENTS,
    ),
    one_edit(
        "name-of-an-offset-forgotten",
        "a fixed offset that was named comes back without its name",
        "kernel/values/zones.py",
        'return "" if name is None or name == usual else f"[{_NAME}{quote(name, safe=\'\')}]"',
        'return ""',
        MOMENTS,
    ),
    one_edit(
        "sets-in-any-order",
        "a set is written in the order of its hashes, which differs from process to process",
        "kernel/values/containers.py",
        'return sorted(_each(item.encode, cast("Iterable[object]", value)), key=_sort_key)',
        'return list(_each(item.encode, cast("Iterable[object]", value)))',
        VALUE_TESTS,
        "tests/unit/hosts/functions/test_replay_key_order.py",
    ),
    one_edit(
        "subclasses-taken",
        "a subclass of a dict is taken, and comes back as a dict",
        "kernel/values/containers.py",
        "        if type(value) is not made:\n"
        "            raise _other(value, cls, made, form)\n"
        "        return _pairs(",
        "        if not isinstance(value, made):\n"
        "            raise _other(value, cls, made, form)\n"
        "        return _pairs(",
        VALUE_TESTS,
    ),
    one_edit(
        "nan-stored",
        "a number that JSON lacks is stored",
        "kernel/values/plain_json.py",
        "if not math.isfinite(data):",
        "if math.isnan(data) and False:",
        VALUE_TESTS,
    ),
    one_edit(
        "enum-of-an-error-lost",
        "an enum that an error holds comes back as its text",
        "kernel/history/error_values.py",
        'return _marked("enum", {"class": _names(kind), "of": known})',
        "return str(known)",
        ERRORS,
    ),
    one_edit(
        "tuple-of-an-error-is-a-list",
        "a tuple that an error holds comes back as a set or list",
        "kernel/history/error_values.py",
        "items if kind is tuple else sorted(items, key=compact)",
        "sorted(items, key=compact)",
        ERRORS,
    ),
    one_edit(
        "union-by-chance",
        "which class of a union a text is of depends on the seed of Python's hashes",
        "kernel/values/containers.py",
        "codec = codecs.get(_by_required_fields(classes, data) if chosen is None else chosen)",
        "codec = codecs.get(chosen)",
        "tests/unit/kernel/test_recursive_types.py -k any_seed",
    ),
)
