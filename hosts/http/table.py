"""The table of all operations. Everything that exists over HTTP is an entry here."""

from typing import Final

from holdfast.hosts.http import (
    bulk_operations,
    command_operations,
    completion_operations,
    key_operations,
    limit_operations,
    namespace_operations,
    output_reads,
    published_reads,
    run_actions,
    run_reads,
    run_starts,
    schedule_operations,
    server_operations,
    session_operations,
    sink_operations,
    task_operations,
    topic_operations,
    trigger_operations,
    worker_operations,
    workflow_operations,
)
from holdfast.hosts.http.operations import Table

OPERATIONS: Final[Table] = (
    *server_operations.OPERATIONS,
    *command_operations.OPERATIONS,
    *session_operations.OPERATIONS,
    *key_operations.OPERATIONS,
    *namespace_operations.OPERATIONS,
    *run_starts.OPERATIONS,
    *run_reads.OPERATIONS,
    *output_reads.OPERATIONS,
    *published_reads.OPERATIONS,
    *run_actions.OPERATIONS,
    *completion_operations.OPERATIONS,
    *bulk_operations.OPERATIONS,
    *schedule_operations.OPERATIONS,
    *limit_operations.OPERATIONS,
    *sink_operations.OPERATIONS,
    *topic_operations.OPERATIONS,
    *trigger_operations.OPERATIONS,
    *workflow_operations.OPERATIONS,
    *worker_operations.OPERATIONS,
    *task_operations.OPERATIONS,
)
