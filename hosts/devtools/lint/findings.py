"""Results of the linter: findings, unreadable files and the report."""

import attrs

from holdfast.hosts.devtools.lint.rules import DOCS, RULES


@attrs.frozen(kw_only=True, order=True)
class Finding:
    """A place in a program that a replay may not be able to repeat.

    Attributes:
        path: The file, relative to the current folder if it is below it.
        line: From 1.
        column: From 1, counted in characters.
        end_line: The last line of the expression or statement.
        code: A code of `holdfast.hosts.devtools.lint.rules.RULES`.
        text: What is wrong, without the advice.
        workflow: The name of the workflow that runs this code; "" outside workflows.
        through: The helper, as `module.function`, through which the workflow calls the code; "" in its own body.
    """

    path: str
    line: int
    column: int
    end_line: int
    code: str
    text: str
    workflow: str = ""
    through: str = ""

    @property
    def advice(self) -> str:
        """What to write instead."""
        return RULES[self.code].advice

    @property
    def is_warning(self) -> bool:
        """Whether the code may be intended."""
        return RULES[self.code].is_warning

    @property
    def message(self) -> str:
        """The text, the call chain if it is not visible there, and the advice."""
        reached = f" (workflow {self.workflow} calls {self.through})" if self.through else ""
        return f"{self.text}{reached}: {self.advice}"

    @property
    def docs(self) -> str:
        """The link to the explanation of the code."""
        return f"{DOCS}#{self.code.lower()}"


@attrs.frozen(kw_only=True, order=True)
class Unreadable:
    """A file that could not be checked."""

    path: str
    """The file."""
    reason: str
    """Why it could not be read."""


@attrs.frozen(kw_only=True)
class Report:
    """The result of linting a program.

    Attributes:
        findings: Sorted by file, line and column.
        warnings: Code that may be intended, in the same order. A program with only warnings passes.
        unreadable: Files that this version of Python can't parse, or that can't be read.
        files: Number of files.
        workflows: Number of workflows in them.
        functions: Number of functions that workflows run: their bodies, and the helpers that they call.
    """

    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()
    unreadable: tuple[Unreadable, ...]
    files: int
    workflows: int
    functions: int
