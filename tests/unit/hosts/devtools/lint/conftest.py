"""Helpers that lint short programs."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from holdfast.hosts.devtools.lint.findings import Report
from holdfast.hosts.devtools.lint.linter import lint

Lint: TypeAlias = Callable[..., Report]
HEAD = """
import asyncio
import holdfast
from holdfast import Channel, step, workflow

approval = Channel("approval", int)

@step
async def charge(order: int) -> int: ...

@workflow
async def other(order: int) -> int: ...
"""


@pytest.fixture
def lint_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    """Lint files with these texts, all of them unless some are named."""

    def run(files: dict[str, str], *named: str) -> Report:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        return lint(named or ["."])

    return run


@pytest.fixture
def lint_body(lint_program: Lint) -> Lint:
    """Lint a workflow with this body, after the definitions in `HEAD` and `above`."""

    def run(body: str, above: str = "") -> Report:
        inside = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
        text = f"{HEAD}{textwrap.dedent(above)}\n\n@workflow\nasync def flow(order: int) -> None:\n{inside}\n"
        return lint_program({"flows.py": text})

    return run


def codes(report: Report) -> list[str]:
    """Return the codes of the findings, in the order of lines."""
    return [finding.code for finding in report.findings]
