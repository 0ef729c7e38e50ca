"""The rules of the linter: codes, titles and advice."""

from collections.abc import Mapping
from typing import Final

import attrs

DOCS: Final = "docs/reference/lint.md"


@attrs.frozen
class Rule:
    """A kind of finding.

    Attributes:
        code: Its permanent name, never reused for another rule.
        title: What is wrong, as a heading.
        advice: What to write instead. It ends the message of a finding.
        is_warning: Whether the code may be intended. Warnings do not fail the check.
    """

    code: str
    title: str
    advice: str
    is_warning: bool = False


CLOCK: Final = "HF001"
BLOCKING_SLEEP: Final = "HF002"
CHANCE: Final = "HF003"
ENVIRONMENT: Final = "HF004"
OUTSIDE: Final = "HF005"
THREADS: Final = "HF006"
SHARED: Final = "HF007"
SET_ORDER: Final = "HF008"
ADDRESSES: Final = "HF009"
UNAWAITED: Final = "HF010"
DROPPED_TASK: Final = "HF011"
DROPPED_CALL: Final = "HF012"
SWALLOWED: Final = "HF013"
EXITS: Final = "HF014"
IMPURE_QUERY: Final = "HF015"
TOO_EARLY: Final = "HF016"
PRINTS: Final = "HF017"
UNREGISTERED: Final = "HF018"
UNKNOWN_CODE: Final = "HF100"

RULES: Final[Mapping[str, Rule]] = {
    rule.code: rule
    for rule in (
        Rule(CLOCK, "Reads the machine's clock", "use holdfast.now(), or read it in a step"),
        Rule(
            BLOCKING_SLEEP,
            "Blocks the event loop with a sleep",
            "write `await holdfast.sleep(...)` or `await asyncio.sleep(...)`, which are durable",
        ),
        Rule(
            CHANCE, "Uses randomness", "use holdfast.random() or holdfast.uuid4(), or generate it in a step"
        ),
        Rule(
            ENVIRONMENT,
            "Reads the environment",
            "pass it to the workflow as an argument, or read it in a step",
        ),
        Rule(OUTSIDE, "Does I/O", "make it a step: a function with @step, and await that"),
        Rule(
            THREADS,
            "Uses threads, processes or another event loop",
            "make it a step: a step that is not async runs in a thread",
        ),
        Rule(
            SHARED, "Uses shared mutable state", "keep it in a local variable, or pass it in as an argument"
        ),
        Rule(SET_ORDER, "Depends on the order of a set", "use a list, a tuple or a dict, or `sorted(...)`"),
        Rule(
            ADDRESSES, "Depends on hash() or id()", "use an attribute of the value, such as its key or name"
        ),
        Rule(
            UNAWAITED, "Calls without await", "write `await`, or pass it to asyncio.gather or to a TaskGroup"
        ),
        Rule(
            DROPPED_TASK,
            "Creates a task without awaiting it",
            "keep it and await it, or create it with `create_task` of an asyncio.TaskGroup",
        ),
        Rule(
            DROPPED_CALL,
            "Creates a call or a signal without using it",
            "use it: `await` it in a workflow, or pass it to engine.start or run.signal",
        ),
        Rule(SWALLOWED, "Swallows cancellation", "catch Exception, or end the handler with `raise`"),
        Rule(EXITS, "Ends the process", "raise an exception, which fails the run, or return"),
        Rule(
            IMPURE_QUERY,
            "A query or a validator changes its object",
            "make it an update: a method with @update, whose change is a row of the history",
        ),
        Rule(
            TOO_EARLY,
            "Continues with arguments that an update may still change",
            "write `continue_as_new(lambda: ...)`: it is called when no update is running",
        ),
        Rule(
            PRINTS,
            "Prints, or writes to a file",
            "use `workflow_context().log(...)`, or logging with a ReplayFilter, or make it a step",
            is_warning=True,
        ),
        Rule(
            UNREGISTERED,
            "Starts a child run that no engine has",
            "add it to the `workflows` of Engine.open, if no other program has a worker for it",
            is_warning=True,
        ),
        Rule(UNKNOWN_CODE, "Silences an unknown code", "correct the comment"),
    )
}
"""All rules by code."""
