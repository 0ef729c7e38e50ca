"""Splits commands into batches, one transaction each, so that no transaction holds its locks for long."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast.kernel.commands import Command, JobExecute
from holdfast.kernel.dispatch.command_weights import weight_of

BATCH_COMMANDS_MAX: Final = 500
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024


def batches_of(commands: Sequence[Command[Any]]) -> Iterator[Sequence[Command[Any]]]:
    """Split commands into batches of at most `BATCH_COMMANDS_MAX` commands and about `BATCH_BYTES_MAX` bytes of values.

    A `job.execute` is a batch of its own: it is three transactions with a body in between.
    """
    batch: list[Command[Any]] = []
    size = 0
    for command in commands:
        weight = weight_of(command)
        alone = isinstance(command, JobExecute)
        if batch and (alone or len(batch) == BATCH_COMMANDS_MAX or size + weight > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        if alone:
            yield (command,)
        else:
            batch.append(command)
            size += weight
    if batch:
        yield batch
