"""The command `holdfast lint`."""

import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.devtools.lint.findings import Finding, Report
from holdfast.hosts.devtools.lint.linter import lint
from holdfast.hosts.devtools.lint.rules import RULES
from holdfast.hosts.text import counted


@click.command("lint", epilog=exits(Exit.OK, Exit.RUN_FAILED, Exit.USAGE))
@click.argument("named", nargs=-1, metavar="[PATH|MODULE]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    help="Lines for people and editors, JSON, or annotations for a GitHub workflow.",
)
@click.option(
    "--ignore",
    "ignored",
    type=click.Choice(list(RULES), case_sensitive=False),
    multiple=True,
    metavar="CODE",
    help="Omit findings of this code. May be repeated.",
)
@screen_options
def lint_command(
    *, screen: Screen, named: tuple[str, ...], form: str | None, ignored: tuple[str, ...]
) -> None:
    """Find code in workflows that a replay cannot repeat.

    Takes files, folders, or modules as they are imported from here; by default the current folder. Imports and runs
    nothing.
    """
    if screen.as_json and form not in {None, "json"}:
        raise click.UsageError(f"--json and --format {form} exclude each other")
    report = lint(named or ["."], ignore=ignored)
    if screen.as_json or form == "json":
        screen.data(_document(report))
    else:
        _print_report(screen, report, as_annotations=form == "github")
    if report.unreadable:
        raise SystemExit(Exit.USAGE)
    raise SystemExit(Exit.RUN_FAILED if report.findings else Exit.OK)


def _print_report(screen: Screen, report: Report, *, as_annotations: bool) -> None:
    for finding in sorted((*report.findings, *report.warnings)):
        if as_annotations:
            screen.write(Text(_annotation(finding)))
        else:
            place = f"{safe(finding.path)}:{finding.line}:{finding.column}: "
            colour, word = ("yellow", " warning:") if finding.is_warning else ("red", "")
            screen.write(
                Text.assemble(place, (finding.code, f"bold {colour}"), f"{word} {safe(finding.message)}")
            )
    for one in report.unreadable:
        if as_annotations:
            screen.write(Text(f"::error file={_property(one.path)}::{_data(one.reason)}"))
        screen.note(f"{one.path}: cannot be read: {one.reason}")
    several = [
        counted(len(some), what)
        for some, what in ((report.findings, "finding"), (report.warnings, "warning"))
        if some
    ]
    found = " and ".join(several) or "no findings"
    looked = f"{counted(report.workflows, 'workflow')} in {counted(report.files, 'file')}"
    screen.note(f"{looked}: {found}")


def _annotation(finding: Finding) -> str:
    place = f"file={_property(finding.path)},line={finding.line},col={finding.column}"
    kind = "warning" if finding.is_warning else "error"
    return f"::{kind} {place},endLine={finding.end_line},title={finding.code}::{_data(finding.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _document(report: Report) -> dict[str, object]:
    return {
        "files": report.files,
        "workflows": report.workflows,
        "functions": report.functions,
        "findings": [_finding(one) for one in report.findings],
        "warnings": [_finding(one) for one in report.warnings],
        "unreadable": [{"path": one.path, "reason": one.reason} for one in report.unreadable],
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "title": RULES[finding.code].title,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "message": finding.message,
        "workflow": finding.workflow or None,
        "through": finding.through or None,
        "docs": finding.docs,
    }
