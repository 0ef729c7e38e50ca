"""Messages that name a job to run."""

from collections.abc import Mapping
from typing import Final

import attrs

from holdfast.ports.errors import InvalidMessageError
from holdfast.ports.json import parse
from holdfast.ports.records.job import job_key

_FIELDS: Final = {"job_id", "epoch"}


@attrs.frozen(kw_only=True)
class JobMessage:
    """A message with the job to run."""

    job_id: str
    """The id of the job."""
    epoch: int
    """The epoch that the job had when the message was sent."""


def message_from(message: "JobMessage | Mapping[str, object] | str") -> JobMessage:
    """Return a checked message. Raises InvalidMessageError unless it has exactly a job id and an epoch."""
    if isinstance(message, JobMessage):
        data: object = {"job_id": message.job_id, "epoch": message.epoch}
    elif isinstance(message, str):
        try:
            data = parse(message)
        except (ValueError, RecursionError):
            raise InvalidMessageError("the message is not JSON") from None
    else:
        data = message
    if not isinstance(data, Mapping) or set(data) != _FIELDS:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidMessageError("a message is a JSON object with `job_id` and `epoch`, and nothing else")
    job_id, epoch = data["job_id"], data["epoch"]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(job_id, str) or type(epoch) is not int or epoch < 0:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidMessageError(
            "in a message `job_id` is a string and `epoch` an integer that is not negative"
        )
    try:
        job_key(job_id)
    except ValueError as error:
        raise InvalidMessageError(str(error)) from None
    return JobMessage(job_id=job_id, epoch=epoch)
