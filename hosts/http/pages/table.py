"""The table of all pages, and of the pages that answer a form."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.hosts.http.operations import Table, Text
from holdfast.hosts.http.pages import (
    bulk,
    events,
    files,
    keys,
    namespaces,
    overview,
    queues,
    rerun,
    run,
    run_messages,
    runs,
    schedules,
    sign_in,
    topics,
    workers,
    workflows,
)

PAGE_OPERATIONS: Final[Table] = (
    files.OPERATION,
    *sign_in.OPERATIONS,
    *overview.OPERATIONS,
    *runs.OPERATIONS,
    *bulk.OPERATIONS,
    *run.OPERATIONS,
    *rerun.OPERATIONS,
    *run_messages.OPERATIONS,
    *workflows.OPERATIONS,
    *schedules.OPERATIONS,
    *topics.OPERATIONS,
    *queues.OPERATIONS,
    *workers.OPERATIONS,
    *events.OPERATIONS,
    *namespaces.OPERATIONS,
    *keys.OPERATIONS,
)

FORM_ANSWERS: Final[Mapping[str, Callable[[Any, Any], Text]]] = {
    **{operation: bulk.bulk_answer(operation, verb) for operation, verb in bulk.ACTIONS.values()},
    "key.create": keys.new_key_page,
    "key.rotate": keys.new_key_page,
}
"""The pages that answer a form of an operation, in place of a redirect, with what no other page shows."""
