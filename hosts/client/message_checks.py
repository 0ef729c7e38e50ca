"""Checks of messages and updates before they are sent, where the sender has the code of the receiving function."""

from difflib import get_close_matches
from typing import Any, Final

import attrs

from holdfast.hosts.wiring.channel_discovery import ReachableChannels, channels_of
from holdfast.hosts.wiring.registry import Registry
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.kernel.authoring.signals import Signal
from holdfast.ports.errors import InvalidValueError, UnknownChannelError

_NAMED_MAX: Final = 10


class MessageChecks:
    """Checks messages and updates against the code of the workflows in a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[str, ReachableChannels] = {}

    def may_be_invalid(self, signal: Signal) -> bool:
        """Whether a message may be invalid: it was built by hand, or no workflow has its channel."""
        workflows = [one for one in self._registry.workflows if isinstance(one, Workflow)]
        if not workflows:
            return False
        return not (signal.checked and any(signal.channel in self._of(one).by_name for one in workflows))

    def check(self, signal: Signal, run_id: str, workflow: Workflow[..., Any]) -> Signal:
        """Return the message as it is to be sent: validated, with defaults filled in.

        A message for an unknown channel is passed unchecked if the function's channels can't all be found by
        inspection.

        Raises:
            UnknownChannelError: The function has no such channel.
            InvalidValueError: The message does not have the type of the channel.
        """
        known = self._of(workflow)
        channels = known.by_name.get(signal.channel, ())
        if not channels and known.is_complete:
            raise UnknownChannelError(run_id, _unknown(workflow.name, signal.channel, known))
        problems: tuple[str, ...] = ()
        for channel in channels:
            try:
                return attrs.evolve(signal, text=channel.recoded(signal.text), checked=True)
            except InvalidValueError as error:
                problems = error.problems
        if channels:
            what = f"channel {signal.channel!r} ({channels[-1].takes}) of workflow {workflow.name!r}"
            raise InvalidValueError(what, problems)
        return signal

    def check_update(self, call: UpdateCall[object], workflow: Workflow[..., Any]) -> None:
        """Check the types of an update's arguments. One that is not found by inspection is passed unchecked.

        Raises InvalidValueError.
        """
        problems: tuple[str, ...] = ()
        for one in self._of(workflow).updates.get(call.update, ()):
            try:
                one.form.decode(call.arguments)
            except InvalidValueError as error:
                problems = error.problems
            else:
                return
        if problems:
            raise InvalidValueError(f"update {call.update!r} of workflow {workflow.name!r}", problems)

    def _of(self, workflow: Workflow[..., Any]) -> ReachableChannels:
        definition = workflow.plan().definition
        if definition not in self._known:
            self._known[definition] = channels_of(workflow.function)
        return self._known[definition]


def _unknown(workflow: str, name: str, known: ReachableChannels) -> str:
    names = sorted(known.by_name)
    text = f"its workflow {workflow!r} has no channel {name!r}"
    if close := get_close_matches(name, names, 1):
        return f"{text}; did you mean {close[0]!r}?"
    return f"{text}; it has {', '.join(map(repr, names[:_NAMED_MAX])) or 'none'}"
