"""Numbers that pages promise: each stands in its page and equals the one in the code.

Tests of a limit take it from the code, so only this test notices when a limit changes.
"""

from datetime import timedelta
from importlib import import_module
from typing import Final

import pytest

from tests.integration.examples.pages import DOCS

DAY: Final = 86_400_000_000

PROMISED: Final = (
    ("kernel.history.limits", "ROWS_MAX", 50_000, "howto/continue-as-new.md", "50,000 rows"),
    ("kernel.history.limits", "ROWS_MORE", 10_000, "howto/blocked-runs.md", "10,000"),
    ("kernel.history.limits", "ROWS_LONG", 10_000, "howto/upgrade-functions.md", "10,000"),
    ("kernel.functions.loop", "CALLBACKS_MAX", 100_000, "howto/blocked-runs.md", "100,000"),
    (
        "kernel.dispatch.command_batches",
        "BATCH_COMMANDS_MAX",
        500,
        "explanation/architecture.md",
        "500 commands",
    ),
    ("kernel.dispatch.command_batches", "BATCH_BYTES_MAX", 4 * 2**20, "explanation/architecture.md", "4 MiB"),
    ("kernel.commands.names", "IDEMPOTENCY_KEY_MAX", 255, "reference/commands.md", "255 characters"),
    ("kernel.rules.retries", "RETRY_AFTER_MAX", 7 * DAY, "howto/retries.md", "seven days"),
    ("kernel.values", "MAX_VALUE_BYTES", 16 * 2**20, "howto/large-values.md", "16 MiB"),
    ("kernel.rules.outbox", "DEAD_LETTER_AFTER", 5, "howto/events.md", "five times"),
    ("kernel.rules.outbox", "DEAD_LETTER_AFTER_FAILURES", 20, "howto/events.md", "twenty times"),
    ("kernel.rules.outbox", "KNOWN_EVERYWHERE", 60_000_000, "howto/events.md", "a minute"),
    ("ports.events", "EVENT_BYTES_MAX", 64 * 2**10, "howto/events.md", "64 KiB"),
    ("hosts.execution.attempt_runtime", "EVENTS_MAX", 1_000, "howto/events.md", "1,000"),
    ("hosts.execution.attempt_runtime", "EVENTS_BYTES_MAX", 2**20, "howto/events.md", "1 MiB"),
    ("hosts.execution.output_buffer", "BUFFERED_LINES_MAX", 1_000, "howto/watch.md", "1,000"),
    ("hosts.execution.attempt_runtime", "LINES_MAX", 20_000, "howto/watch.md", "20,000"),
    ("hosts.wiring.payloads", "INLINE_MAX", 64 * 2**10, "howto/large-values.md", "64 KiB"),
    ("hosts.maintenance.tick", "KEPT_FOR", 7 * DAY, "explanation/guarantees.md", "a week"),
    ("hosts.execution.function_cache", "FUNCTIONS_KEPT", 1_000, "howto/workers.md", "1,000"),
    ("hosts.wiring.stores", "PATIENCE", 30.0, "explanation/guarantees.md", "30 seconds"),
    ("kernel.authoring.options", "CONCURRENCY_MAX", 1_000_000, "howto/limit-rates.md", "1,000,000"),
    (
        "kernel.authoring.options",
        "HEARTBEAT_TIMEOUT_MIN",
        timedelta(seconds=5),
        "howto/heartbeats.md",
        "five seconds",
    ),
    ("hosts.wiring.store_clock", "GAIN_MAX", 0.001, "decisions/0022-clock-drift.md", "thousandth"),
)


@pytest.mark.parametrize(
    ("module", "name", "value", "page", "words"),
    PROMISED,
    ids=[f"{module}.{name}" for module, name, *_ in PROMISED],
)
def test_a_promised_number_is_that_of_the_code(
    module: str, name: str, value: object, page: str, words: str
) -> None:
    assert getattr(import_module(f"holdfast.{module}"), name) == value
    assert words in (DOCS / page).read_text()
