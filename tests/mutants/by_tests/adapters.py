"""Planted bugs in adapters: wrong requests to a database or a receiver."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

ADAPTERS: Final[tuple[Mutant, ...]] = (
    one_edit(
        "sqlite-synchronous-normal",
        "what SQLite has committed may be gone after a loss of power",
        "adapters/sql/sqlite/connection.py",
        '"PRAGMA synchronous = FULL"',
        '"PRAGMA synchronous = NORMAL"',
        "tests/integration/sql/test_sqlite_settings.py",
    ),
    one_edit(
        "sqlite-without-wal",
        "readers wait for the writer",
        "adapters/sql/sqlite/connection.py",
        '"PRAGMA journal_mode = WAL"',
        '"PRAGMA journal_mode = DELETE"',
        "tests/integration/sql/test_sqlite_settings.py",
    ),
    one_edit(
        "sqlite-without-foreign-keys",
        "jobs without runs can be stored",
        "adapters/sql/sqlite/connection.py",
        '"PRAGMA foreign_keys = ON"',
        '"PRAGMA foreign_keys = OFF"',
        "tests/integration/sql/test_sqlite_settings.py",
    ),
    one_edit(
        "sqlite-readers-write",
        "a question may change something",
        "adapters/sql/sqlite/connection.py",
        '"PRAGMA query_only = ON"',
        '"PRAGMA query_only = OFF"',
        "tests/integration/sql/test_sqlite_settings.py",
    ),
    one_edit(
        "deadlock-goes-to-the-caller",
        "serialization failures and deadlocks are not tried again",
        "adapters/sql/errors.py",
        '("08", "25", "26", "40", "53"',
        '("08", "25", "26", "53"',
        "tests/unit/adapters/sql/test_errors.py",
    ),
    one_edit(
        "full-disk-is-nothing-special",
        "a full disk is said to be any failure",
        "adapters/sql/errors.py",
        '_DISK_FULL: Final = "53100"',
        '_DISK_FULL: Final = "53101"',
        "tests/unit/adapters/sql/test_errors.py",
    ),
    one_edit(
        "refused-data-tried-for-ever",
        "data that the server refuses counts as a passing fault",
        "adapters/sql/errors.py",
        '_REFUSED: Final = ("22", "23", "54")',
        '_REFUSED: Final = ("23", "54")',
        "tests/unit/adapters/sql/test_errors.py",
    ),
    one_edit(
        "conflicts-without-end",
        "work that runs into others' rows is run again without end",
        "adapters/sql/retry.py",
        "if self._conflicts >= CONFLICTS_MAX or time.monotonic() >= self._until:",
        "if self._conflicts >= 100 * CONFLICTS_MAX:",
        "tests/unit/adapters/sql/test_errors.py",
    ),
    one_edit(
        "webhook-answers-of-receivers-in-trouble",
        "too many requests count as a refusal of the event",
        "adapters/sinks/webhook.py",
        "426, 429, 451",
        "426, 451",
        "tests/unit/adapters/sinks",
    ),
    one_edit(
        "webhook-timestamp-unsigned",
        "the time of a message is not signed, so it can be sent again much later",
        "adapters/sinks/signing.py",
        'signed = f"{name}.{seconds}.".encode() + body',
        'signed = f"{name}.".encode() + body',
        "tests/unit/adapters/sinks",
    ),
    one_edit(
        "webhook-goes-inside",
        "a name that leads to an internal address is posted to",
        "adapters/sinks/webhook.py",
        "allowed = [one for one in addresses if self._allow_internal or not is_internal(one)]",
        "allowed = list(addresses)",
        "tests/unit/adapters/sinks",
    ),
    one_edit(
        "webhook-url-inside",
        "a URL with an internal address is taken",
        "adapters/sinks/webhook.py",
        'if is_internal(parts.hostname or "") and not allow_internal:',
        'if is_internal(parts.hostname or "") and not allow_internal and not parts.port:',
        "tests/unit/adapters/sinks",
    ),
    one_edit(
        "ids-go-back",
        "ids that are drawn while the clock goes back are not in order",
        "adapters/system/ids.py",
        "_LOW_BITS: Final = 40",
        "_LOW_BITS: Final = 1",
        "tests/conformance/test_clock.py",
        "tests/unit/adapters/system",
    ),
)
