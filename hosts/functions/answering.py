"""What updates have come to, on its way into the history and out of it again."""

from collections.abc import Callable, Sequence

from holdfast.hosts.failures import MESSAGE_MAX
from holdfast.hosts.functions.telling import type_of_answer
from holdfast.hosts.payloads import INLINE_MAX
from holdfast.kernel.commands import Recorded
from holdfast.kernel.functions.asked import Answered, Raised
from holdfast.ports.json import canonical
from holdfast.ports.records import Payload

Put = Callable[[str], Payload]
"""Stores the text of a value: in the row itself, or as a blob if it is large."""


def recorded_answers(answers: Sequence[Answered], put: Put) -> list[Recorded]:
    """Return what is to be recorded of what updates have come to."""
    return [_recorded(one, put) for one in answers]


def are_small(answers: Sequence[Answered]) -> bool:
    """Whether to store them needs no blob store."""
    return all(len(one.output or "") <= INLINE_MAX for one in answers)


def _recorded(answer: Answered, put: Put) -> Recorded:
    raised = answer.rejected or answer.error
    return Recorded(
        type=type_of_answer(answer),
        call=answer.call,
        output=None if answer.output is None else put(answer.output),
        error=None if raised is None else canonical(_facts(raised)),
    )


def _facts(raised: Raised) -> dict[str, object]:
    facts: dict[str, object] = {
        "type": raised.type,
        "message": raised.message[:MESSAGE_MAX],
        "code": raised.code,
    }
    if raised.arguments is not None:
        facts["arguments"] = raised.arguments
    return facts
