"""Planted bugs in the round trip of values and errors."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

VALUE_TESTS: Final = "tests/unit/kernel/test_values.py"
MOMENTS: Final = "tests/unit/kernel/test_datetimes.py"
ERRORS: Final = "tests/unit/kernel/functions/test_recorded_errors.py"

VALUES: Final[tuple[Mutant, ...]] = (
    one_edit(
        "datetime-fold-lost",
        "A datetime in the repeated hour of an autumn night comes back as the first one.",
        "kernel/values/zones.py",
        'return f"{text}[{_FOLD}]" if value.fold else text',
        "return text",
        MOMENTS,
    ),
    one_edit(
        "datetime-zone-lost",
        "A datetime comes back with its offset instead of its time zone.",
        "kernel/values/zones.py",
        'return f"[{key}]"',
        'return ""',
        MOMENTS,
    ),
    one_edit(
        "offset-name-lost",
        "A named fixed offset comes back without its name.",
        "kernel/values/zones.py",
        'return "" if name is None or name == usual else f"[{_NAME}{quote(name, safe=\'\')}]"',
        'return ""',
        MOMENTS,
    ),
    one_edit(
        "sets-unsorted",
        "A set is written in hash order, which differs between processes.",
        "kernel/values/containers.py",
        'return sorted(_each(item.encode, cast("Iterable[object]", value)), key=_sort_key)',
        'return list(_each(item.encode, cast("Iterable[object]", value)))',
        VALUE_TESTS,
        "tests/unit/hosts/functions/test_replay_key_order.py",
    ),
    one_edit(
        "dict-subclass-accepted",
        "A subclass of `dict` is accepted and comes back as a `dict`.",
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
        "A number that JSON does not have is stored.",
        "kernel/values/plain_json.py",
        "if not math.isfinite(data):",
        "if math.isnan(data) and False:",
        VALUE_TESTS,
    ),
    one_edit(
        "error-enum-lost",
        "An enum in an error comes back as text.",
        "kernel/history/error_values.py",
        'return _marked("enum", {"class": _names(kind), "of": known})',
        "return str(known)",
        ERRORS,
    ),
    one_edit(
        "error-tuple-becomes-list",
        "A tuple in an error comes back as another collection.",
        "kernel/history/error_values.py",
        "items if kind is tuple else sorted(items, key=compact)",
        "sorted(items, key=compact)",
        ERRORS,
    ),
    one_edit(
        "union-class-by-hash-seed",
        "The class that a union decodes to depends on Python's hash seed.",
        "kernel/values/containers.py",
        "codec = codecs.get(_by_required_fields(classes, data) if chosen is None else chosen)",
        "codec = codecs.get(chosen)",
        "tests/unit/kernel/test_recursive_types.py -k any_seed",
    ),
)
