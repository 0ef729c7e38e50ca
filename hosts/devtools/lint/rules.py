"""The rules of the linter: codes, titles and advice."""

from collections.abc import Mapping
from typing import Final

import attrs

DOCS: Final = "docs/reference/lint.md"


@attrs.frozen(kw_only=True)
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
        Rule(
            code=CLOCK,
            title="Reads the machine's clock",
            advice="use holdfast.now(), or read it in a step",
        ),
        Rule(
            code=BLOCKING_SLEEP,
            title="Blocks the event loop with a sleep",
            advice="write `await holdfast.sleep(...)` or `await asyncio.sleep(...)`, which are durable",
        ),
        Rule(
            code=CHANCE,
            title="Uses randomness",
            advice="use holdfast.random() or holdfast.uuid4(), or generate it in a step",
        ),
        Rule(
            code=ENVIRONMENT,
            title="Reads the environment",
            advice="pass it to the workflow as an argument, or read it in a step",
        ),
        Rule(
            code=OUTSIDE,
            title="Does I/O",
            advice="make it a step: a function with @step, and await that",
        ),
        Rule(
            code=THREADS,
            title="Uses threads, processes or another event loop",
            advice="make it a step: a step that is not async runs in a thread",
        ),
        Rule(
            code=SHARED,
            title="Uses shared mutable state",
            advice="keep it in a local variable, or pass it in as an argument",
        ),
        Rule(
            code=SET_ORDER,
            title="Depends on the order of a set",
            advice="use a list, a tuple or a dict, or `sorted(...)`",
        ),
        Rule(
            code=ADDRESSES,
            title="Depends on hash() or id()",
            advice="use an attribute of the value, such as its key or name",
        ),
        Rule(
            code=UNAWAITED,
            title="Calls without await",
            advice="write `await`, or pass it to asyncio.gather or to a TaskGroup",
        ),
        Rule(
            code=DROPPED_TASK,
            title="Creates a task without awaiting it",
            advice="keep it and await it, or create it with `create_task` of an asyncio.TaskGroup",
        ),
        Rule(
            code=DROPPED_CALL,
            title="Creates a call or a signal without using it",
            advice="use it: `await` it in a workflow, or pass it to engine.start or run.signal",
        ),
        Rule(
            code=SWALLOWED,
            title="Swallows cancellation",
            advice="catch Exception, or end the handler with `raise`",
        ),
        Rule(
            code=EXITS,
            title="Ends the process",
            advice="raise an exception, which fails the run, or return",
        ),
        Rule(
            code=IMPURE_QUERY,
            title="A query or a validator changes its object",
            advice="make it an update: a method with @update, whose change is a row of the history",
        ),
        Rule(
            code=TOO_EARLY,
            title="Continues with arguments that an update may still change",
            advice="write `continue_as_new(lambda: ...)`: it is called when no update is running",
        ),
        Rule(
            code=PRINTS,
            title="Prints, or writes to a file",
            advice="use `workflow_context().log(...)`, or logging with a ReplayFilter, or make it a step",
            is_warning=True,
        ),
        Rule(
            code=UNREGISTERED,
            title="Starts a child run that no engine has",
            advice="add it to the `workflows` of Engine.open, if no other program has a worker for it",
            is_warning=True,
        ),
        Rule(
            code=UNKNOWN_CODE,
            title="Silences an unknown code",
            advice="correct the comment",
        ),
    )
}
"""All rules by code."""
