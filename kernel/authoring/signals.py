"""A message with its channel, as a value."""

import attrs


@attrs.frozen
class Signal:
    """A message for a channel, as `channel(message)` gives it: nothing is sent before a run's handle is given it.

    `text` is the JSON text of the message.
    """

    channel: str
    text: str
