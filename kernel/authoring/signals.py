"""A message with its channel, as a value."""

import attrs


@attrs.frozen
class Signal:
    """A message for a channel, as `channel(message)` gives it: nothing is sent before a run's handle is given it.

    `text` is the JSON text of the message. `checked` says that it is what the channel takes: a message that is made by
    hand is checked by the engine that sends it, if that has the code of the run's workflow.
    """

    channel: str
    text: str
    checked: bool = attrs.field(default=False, kw_only=True, eq=False)
