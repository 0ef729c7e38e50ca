"""Planted bugs in adapters: wrong requests to a database or a receiver."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

ADAPTERS: Final[tuple[Mutant, ...]] = (
    one_edit(
        "sqlite-synchronous-normal",
        "SQLite can lose a commit in a power failure.",
        "adapters/sql/sqlite/connection.py",
        '"PRAGMA synchronous = FULL"',
        '"PRAGMA synchronous = NORMAL"',
        "tests/integration/sql/test_sqlite_settings.py",
    ),
    one_edit(
        "sqlite-without-wal",
        "SQLite's readers wait for its writer.",
        "adapters/sql/sqlite/connection.py",
        '"PRAGMA journal_mode = WAL"',
        '"PRAGMA journal_mode = DELETE"',
        "tests/integration/sql/test_sqlite_settings.py",
    ),
    one_edit(
        "sqlite-without-foreign-keys",
        "SQLite accepts jobs without runs.",
        "adapters/sql/sqlite/connection.py",
        '"PRAGMA foreign_keys = ON"',
        '"PRAGMA foreign_keys = OFF"',
        "tests/integration/sql/test_sqlite_settings.py",
    ),
    one_edit(
        "sqlite-readers-write",
        "A read connection of SQLite can write.",
        "adapters/sql/sqlite/connection.py",
        '"PRAGMA query_only = ON"',
        '"PRAGMA query_only = OFF"',
        "tests/integration/sql/test_sqlite_settings.py",
    ),
    one_edit(
        "deadlock-not-retried",
        "Serialization failures and deadlocks are not retried.",
        "adapters/sql/postgresql/errors.py",
        '("08", "25", "26", "40", "53"',
        '("08", "25", "26", "53"',
        "tests/unit/adapters/sql/test_errors.py",
    ),
    one_edit(
        "full-disk-not-recognized",
        "A full disk is reported as an ordinary failure.",
        "adapters/sql/postgresql/errors.py",
        '_DISK_FULL: Final = "53100"',
        '_DISK_FULL: Final = "53101"',
        "tests/unit/adapters/sql/test_errors.py",
    ),
    one_edit(
        "refused-data-retried",
        "Data that the server refuses counts as a temporary failure.",
        "adapters/sql/postgresql/errors.py",
        '_REFUSED: Final = ("22", "23", "54")',
        '_REFUSED: Final = ("23", "54")',
        "tests/unit/adapters/sql/test_errors.py",
    ),
    one_edit(
        "conflicts-retried-for-ever",
        "Transactions that conflict with others are retried for ever.",
        "adapters/sql/retry.py",
        "if self._conflicts >= CONFLICTS_MAX or time.monotonic() >= self._until:",
        "if self._conflicts >= 100 * CONFLICTS_MAX:",
        "tests/unit/adapters/sql/test_errors.py",
    ),
    one_edit(
        "webhook-429-counts-as-refusal",
        "A reply of 429 (too many requests) counts as a refusal of the event.",
        "adapters/sinks/webhook.py",
        "426, 429, 451",
        "426, 451",
        "tests/unit/adapters/sinks",
    ),
    one_edit(
        "webhook-timestamp-unsigned",
        "A webhook's timestamp is not signed: its message can be replayed much later.",
        "adapters/sinks/signing.py",
        'signed = f"{name}.{seconds}.".encode() + body',
        'signed = f"{name}.".encode() + body',
        "tests/unit/adapters/sinks",
    ),
    one_edit(
        "webhook-posts-to-internal-address",
        "A webhook posts to a name that resolves to an internal address.",
        "adapters/sinks/webhook.py",
        "allowed = [one for one in addresses if self._allow_internal or not is_internal(one)]",
        "allowed = list(addresses)",
        "tests/unit/adapters/sinks",
    ),
    one_edit(
        "webhook-accepts-internal-url",
        "A webhook accepts a URL with an internal address.",
        "adapters/sinks/webhook.py",
        'if is_internal(parts.hostname or "") and not allow_internal:',
        'if is_internal(parts.hostname or "") and not allow_internal and not parts.port:',
        "tests/unit/adapters/sinks",
    ),
    one_edit(
        "ids-go-back",
        "Ids that are generated while the clock goes back are out of order.",
        "adapters/system/ids.py",
        "_LOW_BITS: Final = 40",
        "_LOW_BITS: Final = 1",
        "tests/conformance/test_clock.py",
        "tests/unit/adapters/system",
    ),
)
