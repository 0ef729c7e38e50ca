"""Events encoded as CloudEvents 1.0, JSON format."""

from collections.abc import Iterable
from datetime import UTC
from typing import Final
from urllib.parse import quote

from holdfast.ports.events import Event
from holdfast.ports.json import canonical

STRUCTURED: Final = "application/cloudevents+json; charset=utf-8"
BATCHED: Final = "application/cloudevents-batch+json; charset=utf-8"
TYPES: Final = "holdfast."
"""The prefix of the types of CloudEvents."""


def cloud_event(event: Event, source: str | None = None) -> str:
    """Return an event as the JSON text of a CloudEvent. Its data is copied unparsed to the end of the text.

    `source` is the CloudEvent's `source`; by default `/holdfast/<namespace>`.
    """
    fields: dict[str, object] = {
        "datacontenttype": "application/json",
        "holdfastgeneration": event.generation,
        "holdfastnamespace": event.namespace,
        "holdfastnumber": event.number,
        "holdfastrun": event.run,
        "holdfastworkflow": event.workflow,
        "id": event.id,
        "source": source or f"/holdfast/{quote(event.namespace, safe='')}",
        "specversion": "1.0",
        "subject": event.run_id,
        "time": event.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "type": f"{TYPES}{event.type}",
    }
    if event.stage is not None:
        fields["holdfaststage"] = event.stage
    if event.item is not None:
        fields["holdfastitem"] = event.item
    # The format requires that an extension without a value, or with an empty one, is left out.
    present = {name: value for name, value in fields.items() if value != ""}
    return f'{canonical(present)[:-1]},"data":{event.data}}}'


def batch(texts: Iterable[str]) -> str:
    """Return CloudEvents, each a JSON text, as one JSON list."""
    return f"[{','.join(texts)}]"
