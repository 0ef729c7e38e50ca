"""Planted bugs in triggers. The simulator finds them with its workload of topics."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant


def _mutant(name: str, breaks: str, caught_by: tuple[str, ...], *edits: Edit) -> Mutant:
    return Mutant(name=name, breaks=breaks, caught_by=caught_by, edits=edits, workload="topics")


RULE: Final = "kernel/rules/triggers.py"
FIRING: Final = "hosts/execution/trigger_firer.py"

TRIGGERS: Final = (
    _mutant(
        "trigger-moves-on-without-its-run",
        "A trigger moves past a message, and the run of the message is not stored.",
        ("X7",),
        Edit(
            RULE,
            "(Update(with_outcome(moved, outcome)), *decision.changes)",
            "(Update(with_outcome(moved, outcome)),)",
        ),
    ),
    _mutant(
        "trigger-fires-wherever-it-is",
        "A host that is late moves a trigger back.",
        ("X7",),
        Edit(RULE, " or row.next_number != command.expected:", ":"),
    ),
    _mutant(
        "trigger-fires-by-its-former-selection",
        "A host that has read a trigger before its update moves it past messages that it selects now.",
        ("X7",),
        Edit(
            RULE,
            "    if command.digest is not None and command.digest != trigger_digest(row):\n",
            "    if False:\n",
        ),
    ),
    _mutant(
        "trigger-fires-for-earlier-messages",
        "A trigger starts runs for messages that were published before it begins.",
        ("X7",),
        Edit(FIRING, "        if message.at < self.row.since:\n            return False\n", ""),
    ),
    _mutant(
        "trigger-selects-every-message",
        "A trigger starts runs for messages that it does not select.",
        ("X7",),
        Edit(FIRING, "return is_selected(", "return True or is_selected("),
    ),
    _mutant(
        "trigger-misses-a-message",
        "A trigger goes on after the message that follows the one that it has handled.",
        ("X7",),
        Edit(
            FIRING, "                next=message.number + 1,\n", "                next=message.number + 2,\n"
        ),
        Edit(
            FIRING,
            "            number = message.number + 1\n",
            "            number = message.number + 2\n",
        ),
    ),
    _mutant(
        "trigger-passes-over-the-next-page",
        "A trigger that has handled a page of messages goes on after the last message of the topic.",
        ("X7",),
        Edit(FIRING, "max(numbers, default=last) + 1", "last + 1"),
    ),
    _mutant(
        "trigger-fires-while-paused",
        "A paused trigger starts runs.",
        ("X7",),
        Edit(RULE, "row is None or row.paused is not None or", "row is None or"),
        Edit(FIRING, "if entry.row.paused is None and entry.behind:", "if entry.behind:"),
    ),
    _mutant(
        "resumed-trigger-skips",
        "A trigger that is resumed always passes over the messages of the pause.",
        ("X7",),
        Edit(RULE, "    if command.skip:\n", "    if True:\n"),
    ),
    _mutant(
        "message-expires-before-its-trigger",
        "A message is deleted although a trigger has not handled it.",
        ("X6",),
        Edit(
            "adapters/memory/searches.py",
            "return not (is_for_trigger or is_for_group)",
            "return not is_for_group",
        ),
    ),
)
