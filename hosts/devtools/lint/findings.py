"""What the linter has come to."""

import attrs

from holdfast.hosts.devtools.lint.rules import DOCS, RULES


@attrs.frozen(kw_only=True, order=True)
class Finding:
    """One place in a program that a replay may not be able to repeat.

    Attributes:
        path: The file, as it was found.
        line: From 1.
        column: From 1, counted in characters.
        end_line: The last line of the expression or statement.
        code: One of `holdfast.hosts.devtools.lint.rules.RULES`.
        text: What is wrong there, without the advice.
        workflow: The name of the workflow whose code this is; "" if it is the code of none.
        through: The helper, as `module.function`, by which the workflow gets there; "" if it is in its own body.
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
        """What to do about it."""
        return RULES[self.code].advice

    @property
    def is_warning(self) -> bool:
        """Whether it may be as it is wanted."""
        return RULES[self.code].is_warning

    @property
    def message(self) -> str:
        """What is wrong, whose it is if that can't be seen there, and what to do."""
        reached = f" (workflow {self.workflow} calls {self.through})" if self.through else ""
        return f"{self.text}{reached}: {self.advice}"

    @property
    def docs(self) -> str:
        """Where its code is explained."""
        return f"{DOCS}#{self.code.lower()}"


@attrs.frozen(kw_only=True, order=True)
class Unreadable:
    """A file that could not be looked at, and why."""

    path: str
    reason: str


@attrs.frozen(kw_only=True)
class Report:
    """What came of one look at a program.

    Attributes:
        findings: In the order of files, lines and columns.
        warnings: What may be as it is wanted, in the same order. A program that has only these passes.
        unreadable: Files that are no Python that this Python reads.
        files: How many files were looked at.
        workflows: How many workflows are in them.
        functions: How many functions are the code of workflows: their bodies, and the helpers that they call.
    """

    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()
    unreadable: tuple[Unreadable, ...]
    files: int
    workflows: int
    functions: int
