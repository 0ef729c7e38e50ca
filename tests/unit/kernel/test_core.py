"""The core of the kernel stays small, and does not know the features beside it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import holdfast.kernel

KERNEL: Final = Path(holdfast.kernel.__file__).parent
LINES_MAX: Final = 4_900
FILES_MAX: Final = 27

CORE: Final = (
    *("commands/command", "commands/names", "commands/follow_ups"),
    *("commands/jobs", "commands/runs", "commands/sessions"),
    *("state", "runs/transitions", "runs/builder", "runs/plan_interpreter"),
    *("dispatch/kernel", "dispatch/command_batches", "dispatch/idempotency", "dispatch/read_set"),
    *("dispatch/loader", "dispatch/storage_refusals", "dispatch/unreadable_runs"),
    *("rules/run_creation", "rules/runs", "rules/sessions", "rules/claims", "rules/leases"),
    *("rules/settlement", "rules/retries", "rules/follow_ups"),
)
"""In the order in which they are best read: what is asked, what is known, how a batch is carried out, the rules."""
FOUNDATIONS: Final = (
    *("commands", "converters", "history", "limits", "pipelines", "search_results", "values"),
    *(
        "dispatch/command_weights",
        "dispatch/job_execution",
        "runs/external_work",
        "runs/gathered_starts",
        "runs/reply_deliveries",
        "runs/subscriptions",
    ),
)
"""Data, and functions of it, that know neither the core nor a feature. The classes of all commands are data."""
DOORS: Final = {
    "dispatch/command_bounds": {"dispatch/kernel"},
    "dispatch/features": {"dispatch/kernel"},
    "rules/registry": {"dispatch/kernel", "dispatch/idempotency"},
}
"""The modules that list the features, each with the only modules of the core that import it."""


def _imported(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((KERNEL / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast.kernel."):
            yield (node.module or "").removeprefix("holdfast.kernel.").replace(".", "/")


def test_the_core_is_small() -> None:
    lines = sum(len((KERNEL / f"{module}.py").read_text().splitlines()) for module in CORE)
    assert len(CORE) == len(set(CORE)) <= FILES_MAX
    assert lines <= LINES_MAX


def test_the_core_does_not_know_the_features_beside_it() -> None:
    known = {(module, other) for module in CORE for other in _imported(module)}
    assert len(known) > 60
    assert [
        (module, other)
        for module, other in sorted(known)
        if other not in CORE
        and not any(other == one or other.startswith(f"{one}/") for one in FOUNDATIONS)
        and module not in DOORS.get(other, ())
    ] == []


@pytest.mark.slow
def test_the_foundations_know_neither_the_core_nor_a_feature() -> None:
    """Except the classes of commands, which all of them may name."""
    files = [path for one in FOUNDATIONS for path in [KERNEL / f"{one}.py", *(KERNEL / one).rglob("*.py")]]
    modules = [path.relative_to(KERNEL).as_posix().removesuffix(".py") for path in files if path.is_file()]
    assert len(modules) > 40
    for module in modules:
        for other in _imported(module):
            assert other.startswith(FOUNDATIONS), (module, other)
