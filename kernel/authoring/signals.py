"""`Signal`: a message with its channel, ready to send."""

import attrs


@attrs.frozen
class Signal:
    """A message with its channel, made by `channel(message)`. `run.signal(...)` sends it."""

    channel: str
    """Name of the channel."""
    text: str
    """JSON text of the message."""
    checked: bool = attrs.field(default=False, kw_only=True, eq=False)
    """Whether the message was checked against the channel's type. An engine with the run's code checks the others."""
