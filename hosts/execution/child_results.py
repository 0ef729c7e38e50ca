"""Delivers the end of a run: its result to the parent run, and the close policy to its child runs.

Also delivers the answer to an update that another run has sent, to that run.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, cast

from attrs import evolve

from holdfast.hosts.wiring.input_loader import InputLoader, Values
from holdfast.hosts.wiring.payloads import BlobOwner, Payloads
from holdfast.kernel.commands import (
    Failure,
    RunCancel,
    RunDeliver,
    RunTerminate,
    UpdateDeliver,
    follow_up_of,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.runs.reply_deliveries import ReplyDelivery, reply_delivery_of
from holdfast.ports.errors import BlobCorruptError, BlobMissingError, CommandError, HoldfastError
from holdfast.ports.json import parse
from holdfast.ports.queries.runs import OrphanedChildren, PendingDeliveries, RunsByKey
from holdfast.ports.records.job import Job, JobKey, job_key
from holdfast.ports.records.run import ClosePolicy, Run, RunStatus
from holdfast.ports.references import leaves, located, reference_from
from holdfast.ports.unreadable import PARSE_ERRORS

AT_ONCE: Final = 100
"""The maximum number of ends delivered in one batch."""
CHILDREN_AT_ONCE: Final = 500
"""The maximum number of child runs closed in one batch."""

_log = logging.getLogger("holdfast.endings")


class RunEndDelivery:
    """Delivers the ends of runs and replies to updates. Any host may do so at any time: each is delivered once."""

    def __init__(self, inputs: InputLoader, payloads: Payloads) -> None:
        self._inputs = inputs
        self._payloads = payloads

    def try_to_deliver_all(self, kernel: Kernel) -> None:
        """Deliver all pending ends. A failure is logged only: maintenance does the same."""
        try:
            self.deliver_all(kernel)
        except HoldfastError as error:
            _log.warning("maintenance must deliver the results of runs: %s", error)

    def deliver_all(self, kernel: Kernel) -> int:
        """Deliver all pending ends that can be delivered now. Return how many were."""
        delivered = since = 0
        stuck: set[JobKey] = set()  # an end that can't be delivered now must not hold up the others
        after: JobKey | None = None
        while (pending := kernel.persistence.read(PendingDeliveries(AT_ONCE, after))) or (after and since):
            if not pending:
                after, since = None, 0  # a delivery may have ended a parent, whose end is then due too
                continue
            left = [job for job in pending if job.key not in stuck]
            done = self._deliver(kernel, left) if left else set[JobKey]()
            stuck.update(job.key for job in left if job.key not in done)
            if len(done) < len(pending):
                after = pending[-1].key
            delivered, since = delivered + len(done), since + len(done)
        return delivered

    def _deliver(self, kernel: Kernel, pending: Sequence[Job]) -> set[JobKey]:
        """Deliver the ends that these jobs stand for. Return the keys of the jobs that are done."""
        runs = {
            run.key: run
            for run in kernel.persistence.read(RunsByKey(tuple(sorted({job.run for job in pending}))))
        }
        commands: list[RunDeliver | UpdateDeliver] = []
        ends: list[tuple[Job, Run, str | None]] = []
        replies: list[tuple[Job, Run, ReplyDelivery]] = []
        for job in pending:
            if (run := runs.get(job.run)) is None:
                continue
            try:
                reply = reply_delivery_of(job)
                if reply is None:
                    ends.append((job, run, _parent(job)))
                else:
                    replies.append((job, run, reply))
            except PARSE_ERRORS as error:
                _log.error("what job %s delivers can't be read: %r", job.key.text, error)
        values = self._inputs.values(
            tuple(
                dict.fromkeys(
                    [
                        *(
                            located(run.key, leaf)
                            for _, run, parent in ends
                            if parent is not None and run.result is not None
                            for leaf in leaves(reference_from(run.result))
                        ),
                        *(located(run.key, reply.row) for _, run, reply in replies if reply.row is not None),
                    ]
                )
            )
        )
        parents = {run.key: run for _, run, parent in ends if parent is None}
        are_closed = not parents or self._close_children(kernel, parents)
        for job, run, parent in ends:
            if parent is None and not are_closed:
                continue
            try:
                commands.append(self._end(job, run, parent, values))
            except Exception as error:  # noqa: BLE001  # any error of a blob store affects only this end
                _log.error("what run %s can't be delivered yet: %s", run.id, error)
        for job, run, reply in replies:
            try:
                commands.append(self._reply(job, run, reply, values))
            except Exception as error:  # noqa: BLE001  # any error of a blob store affects only this reply
                _log.error("the reply to an update of run %s can't be delivered yet: %s", run.id, error)
        delivered: set[JobKey] = set()
        answers = kernel.dispatch_many(commands)
        for namespace in sorted({command.namespace for command in commands}):
            kernel.admit(namespace, follow_up_of(answers))
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, CommandError):
                _log.error("what job %s can't be delivered yet: %s", command.job, answer)
            else:
                delivered.add(job_key(command.job))
        return delivered

    def _end(self, job: Job, run: Run, parent: str | None, values: Values) -> RunDeliver:
        """Return the command that delivers an end, with the child's result copied into a value of the parent.

        The copy is needed because runs never share blobs. A result whose blob is lost is delivered as a failure.
        """
        deliver = RunDeliver(namespace=job.namespace, job=job.key.text, parent=parent)
        if parent is None or run.status is not RunStatus.COMPLETED:
            return deliver
        try:
            text = self._inputs.compose(run.key, reference_from(run.result or "null"), values)
        except (BlobMissingError, BlobCorruptError) as error:
            message = f"run {run.id!r} completed; its result is lost: {error}"
            return evolve(deliver, failure=Failure(code=error.code, message=message, retryable=False))
        place = BlobOwner(namespace=run.namespace, run=job_key(parent).run, stage="children", epoch=0)
        return evolve(deliver, output=self._payloads.put(text, place))

    def _reply(self, job: Job, run: Run, reply: ReplyDelivery, values: Values) -> UpdateDeliver:
        """Return the command that delivers the reply to an update, with its result copied into a value of the sender.

        A result whose blob is lost is delivered as a failure.
        """
        deliver = UpdateDeliver(namespace=job.namespace, job=job.key.text, run_id=reply.address.sender)
        if reply.row is None:
            return deliver
        try:
            text = self._inputs.compose(run.key, reply.row, values)
        except (BlobMissingError, BlobCorruptError) as error:
            return evolve(deliver, failure=Failure(code=error.code, message=str(error), retryable=False))
        sender = reply.address.key.partition("/")[0]
        place = BlobOwner(namespace=run.namespace, run=sender, stage="replies", epoch=0)
        return evolve(deliver, output=self._payloads.put(text, place))

    def _close_children(self, kernel: Kernel, parents: Mapping[str, Run]) -> bool:
        """Apply the close policy to the active children of ended runs. Return False if that is not possible now."""
        known: set[str] = set()
        try:
            while children := kernel.persistence.read(
                OrphanedChildren(tuple(sorted(parents)), CHILDREN_AT_ONCE)
            ):
                found = {child.key for child in children}
                if found == known:  # no child was closed: all commands were refused
                    break
                known = found
                kernel.dispatch_many([_closing(child, parents) for child in children])
                if len(children) < CHILDREN_AT_ONCE:
                    break
        except HoldfastError as error:
            _log.error("the children of %d ended runs can't be closed yet: %s", len(parents), error)
            return False
        return True


def _closing(child: Run, parents: Mapping[str, Run]) -> RunCancel | RunTerminate:
    parent = parents[job_key(child.parent or "").run]
    return (RunTerminate if child.close_policy is ClosePolicy.TERMINATE else RunCancel)(
        namespace=child.namespace,
        run_id=child.id,
        generation=child.generation,
        reason=f"its parent {parent.id!r} continued or ended without it",
    )


def _parent(job: Job) -> str | None:
    return cast("str | None", parse(job.input))
