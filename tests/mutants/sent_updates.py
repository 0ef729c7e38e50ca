"""Planted bugs in updates between runs. The simulator finds them with its workload of updates."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(name: str, breaks: str, *edits: Edit, caught_by: tuple[str, ...] = ("M3", "M4")) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=caught_by, edits=edits, workload="updates")


RULE: Final = "kernel/rules/sent_updates.py"

SENT_UPDATES: Final = (
    _mutant(
        "reply-not-delivered",
        "The answer to an update of another run opens no delivery.",
        Edit(
            RULE,
            "            draft.add_reply_delivery(reply_of(address, answers[number]))",
            "            pass",
        ),
    ),
    _mutant(
        "reply-delivered-by-call-only",
        "A reply is accepted by its call alone: a second one of a run that was run again arrives too.",
        Edit(
            RULE,
            "    if mailbox.sent.get(call) != delivery.address.key:",
            "    if sender.generation > 1_000:",
        ),
    ),
    _mutant(
        "ended-run-answers-no-update",
        "A run ends with unanswered updates of other runs, and their senders get no reply.",
        Edit(
            "kernel/runs/builder.py",
            '                self.add_reply_delivery(ReplyDelivery(address=address, outcome="lost"))',
            "                pass",
        ),
    ),
    _mutant(
        "ended-run-drops-replies",
        "The end of a run deletes its pending deliveries of replies.",
        Edit(
            "ports/working_set.py",
            "self._close_jobs(run, lambda job: job.kind is not JobKind.DELIVER)",
            "self._close_jobs(run, lambda _: True)",
        ),
    ),
    _mutant(
        "continued-run-forgets-senders",
        "An update that is handed on to the next generation is answered there, and not replied.",
        Edit(
            "kernel/rules/continue_as_new.py",
            "        if received.address is not None:\n",
            "        if received.address is not None and False:\n",
        ),
    ),
    _mutant(
        "rerun-forgets-senders",
        "A rerun answers the updates of the generation before it, and does not reply.",
        Edit(
            "kernel/rules/reruns.py",
            "        if isinstance(event, events.UpdateReceived) and event.address is not None:\n",
            "        if isinstance(event, events.UpdateReceived) and event.address is not None and False:\n",
        ),
    ),
    _mutant(
        "rerun-awaits-no-reply",
        "A rerun of an active run does not get the replies to the updates in its kept rows.",
        Edit(
            "kernel/rules/reruns.py",
            "            sent={} if before.status in TERMINAL else {call: one.key for call, one in fork.sent.items()},",
            "            sent={},",
        ),
        caught_by=("M3", "L1"),
    ),
    _mutant(
        "repeated-record-updates-again",
        "A driver whose reply was lost sends its records again, and the update is stored twice.",
        Edit(
            "kernel/rules/function_history.py",
            "        if _identity_of(record) in known:\n            continue",
            "        if _identity_of(record) in known and not isinstance(record, UpdateSend):\n            continue",
        ),
        caught_by=("M4", "S6"),
    ),
)
