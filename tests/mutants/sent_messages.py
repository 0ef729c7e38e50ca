"""Planted bugs in messages between runs. The simulator finds them with its workload of messages."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(name: str, breaks: str, *edits: Edit) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=("M2", "S6"), edits=edits, workload="messages")


RULE: Final = "kernel/rules/sent_messages.py"
RECORDS: Final = "kernel/rules/function_history.py"

SENT_MESSAGES: Final = (
    _mutant(
        "sent-message-not-stored",
        "A function's message is recorded as sent, and is not in the history of the other run.",
        Edit(RULE, "Decision(its.follow_up, its.changes(), tuple(its.hints))", "Decision(NO_FOLLOW_UP, ())"),
    ),
    _mutant(
        "sender-forgotten",
        "A message from a function does not say which run sent it.",
        Edit(RULE, "now, sender=run.id)", "now)"),
    ),
    _mutant(
        "refused-message-recorded-as-sent",
        "A message that the other run refuses is recorded as sent.",
        Edit(
            RULE,
            "            event = evolve(event, message=error.why, closed=isinstance(error, ChannelClosedError))",
            "            assert isinstance(error, ChannelClosedError | SignalRefusedError)",
        ),
    ),
    _mutant(
        "second-message-overwrites-first",
        "Two messages of one command to the same run: the second is decided on the run as it was before the first.",
        Edit(
            RECORDS,
            "                continue  # the run was read before this command: one change per run",
            "                pass",
        ),
    ),
    _mutant(
        "repeated-record-sends-again",
        "A driver whose reply was lost sends its records again, and the message is stored twice.",
        Edit(
            RECORDS,
            "        if _identity_of(record) in known:\n            continue",
            "        if _identity_of(record) in known and not isinstance(record, SignalSend):\n            continue",
        ),
    ),
)
