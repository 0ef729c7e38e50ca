"""Registry of commands: the rule that decides each command, and the class of its reply."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs

from holdfast.kernel import commands as c
from holdfast.kernel.commands.codec import from_data
from holdfast.kernel.rules import (
    admissions,
    attempt_output,
    browser_sessions,
    cancels,
    children,
    claims,
    credentials,
    deadlines,
    external_work,
    function_history,
    function_settlement,
    heartbeats,
    leader_leases,
    leases,
    limits,
    namespaces,
    outbox,
    outcomes,
    removals,
    repairs,
    reruns,
    runs,
    schedule_starts,
    schedules,
    sent_updates,
    sessions,
    settlement,
    signals,
    sink_batches,
    sinks,
    starts,
    topic_delivery,
    topic_removal,
    topics,
    triggers,
    updates,
    workflows,
)
from holdfast.kernel.rules.actors import signed
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.values import Micros

C = TypeVar("C", bound=c.Command[Any])
R = TypeVar("R")

Decide: TypeAlias = Callable[[State, C, Micros, Ids], Decision[R]]


@attrs.frozen
class Rule:
    """The rule of one command class."""

    command: type[c.Command[Any]]
    reply: type
    """Class of the replies."""
    reads: Callable[[Any], Reads]
    """Returns the rows to read and lock for a command."""
    decide: Callable[[State, Any, Micros, Ids], Decision[Any]]
    """Returns the decision on a command, from these rows, the store's time and a source of ids."""


def _rule(
    command: type[C],
    reply: type[R],
    reads: Callable[[C], Reads],
    decide: Callable[[State, C, Micros, Ids], Decision[R]],
) -> Rule:
    return Rule(command, reply, reads, signed(decide) if issubclass(command, c.OperatorCommand) else decide)


_ALL: Final = (
    _rule(c.RunCreate, c.RunCreated, starts.reads_of_create, starts.decide_create),
    _rule(c.RunTransition, c.RunTransitioned, runs.reads_of_named, runs.decide_transition),
    _rule(c.RunCancel, c.RunStopped, cancels.reads_of_cancel, cancels.decide_cancel),
    _rule(c.RunTerminate, c.RunStopped, runs.reads_of_named, runs.decide_terminate),
    _rule(c.RunPause, c.RunPaused, runs.reads_of_whole, runs.decide_pause),
    _rule(c.RunResume, c.RunPaused, runs.reads_of_whole, runs.decide_resume),
    _rule(c.RunRerunFrom, c.RunRerun, reruns.reads_of_rerun, reruns.decide_rerun),
    _rule(c.RunRemove, c.RunRemoved, removals.reads_of_remove, removals.decide_remove),
    _rule(c.RunSignal, c.RunSignalled, signals.reads_of_signal, signals.decide_signal),
    _rule(c.RunUpdate, c.RunUpdated, updates.reads_of_update, updates.decide_update),
    _rule(c.RunAnnotate, c.RunAnnotated, attempt_output.reads_of_annotate, attempt_output.decide_annotate),
    _rule(
        c.RunClaimPending, c.RunsAdmitted, admissions.reads_of_claim_pending, admissions.decide_claim_pending
    ),
    _rule(c.RunExpire, c.RunsExpired, deadlines.reads_of_expire, deadlines.decide_expire),
    _rule(c.JobAdmit, c.JobsAdmitted, admissions.reads_of_admit, admissions.decide_admit),
    _rule(c.RunRepair, c.RunRepaired, repairs.reads_of_repair, repairs.decide_repair),
    _rule(c.RunDeliver, c.RunDelivered, children.reads_of_deliver, children.decide_deliver),
    _rule(c.UpdateDeliver, c.RunDelivered, sent_updates.reads_of_deliver, sent_updates.decide_deliver),
    _rule(c.JobClaim, c.JobsClaimed, claims.reads_of_claim, claims.decide_claim),
    _rule(c.JobClaimOne, c.JobClaimed, claims.reads_of_claim_one, claims.decide_claim_one),
    _rule(
        c.JobSettle,
        c.JobSettled,
        attempt_output.settle_reads_with_output(settlement.settle_reads(outcomes.READS)),
        attempt_output.settle_with_output(
            settlement.settle_decision(outcomes.OUTCOMES, function_settlement.without_overtaken_end)
        ),
    ),
    _rule(c.JobRecord, c.JobRecorded, function_history.reads_of_record, function_history.decide_record),
    _rule(c.JobRelease, c.JobReleased, leases.reads_of_release, leases.decide_release),
    _rule(c.JobHeartbeat, c.JobsHeld, heartbeats.reads_of_heartbeat, heartbeats.decide_heartbeat),
    _rule(
        c.JobReapUnresponsive,
        c.UnresponsiveReaped,
        heartbeats.reads_of_reap_unresponsive,
        heartbeats.decide_reap_unresponsive,
    ),
    _rule(c.JobWakeDue, c.JobsWoken, claims.reads_of_wake_due, claims.decide_wake_due),
    _rule(c.StagePollSuspended, c.JobsWoken, external_work.reads_of_poll, external_work.decide_poll),
    _rule(c.StageWake, c.StagesWoken, external_work.reads_of_wake, external_work.decide_wake),
    _rule(c.SessionOpen, c.SessionOpened, sessions.reads_of_open, sessions.decide_open),
    _rule(c.SessionRenew, c.SessionRenewed, sessions.reads_of_renew, sessions.decide_renew),
    _rule(c.SessionClose, c.SessionRenewed, sessions.reads_of_renew, sessions.decide_close),
    _rule(c.SessionReap, c.LeasesReaped, sessions.reads_of_reap, sessions.decide_reap),
    _rule(
        c.LeaseReapStale,
        c.LeasesReaped,
        sessions.reads_of_reap_stale,
        sessions.reap_stale_decision(outcomes.LOST_JOBS),
    ),
    _rule(c.LeaderAcquire, c.LeaderAcquired, leader_leases.reads_of_acquire, leader_leases.decide_acquire),
    _rule(c.SchedulePut, c.ScheduleStored, schedules.reads_of_named, schedules.decide_put),
    _rule(c.SchedulePause, c.ScheduleStored, schedules.reads_of_named, schedules.decide_pause),
    _rule(c.ScheduleResume, c.ScheduleStored, schedules.reads_of_named, schedules.decide_resume),
    _rule(c.ScheduleRemove, c.ScheduleRemoved, schedules.reads_of_named, schedules.decide_remove),
    _rule(c.ScheduleReplan, c.SchedulesReplanned, schedules.reads_of_replan, schedules.decide_replan),
    _rule(c.ScheduleFire, c.SchedulesFired, schedule_starts.reads_of_fire, schedule_starts.decide_fire),
    _rule(
        c.ScheduleTrigger, c.ScheduleStarted, schedule_starts.reads_of_trigger, schedule_starts.decide_trigger
    ),
    _rule(
        c.ScheduleBackfill,
        c.ScheduleBackfilled,
        schedule_starts.reads_of_backfill,
        schedule_starts.decide_backfill,
    ),
    _rule(c.LimitSet, c.LimitStored, limits.reads_of_limit, limits.decide_set),
    _rule(c.LimitClear, c.LimitStored, limits.reads_of_limit, limits.decide_clear),
    _rule(c.CredentialCreate, c.CredentialCreated, credentials.reads_of_create, credentials.decide_create),
    _rule(c.CredentialRotate, c.CredentialRotated, credentials.reads_of_named, credentials.decide_rotate),
    _rule(c.CredentialRevoke, c.CredentialRevoked, credentials.reads_of_named, credentials.decide_revoke),
    _rule(c.CredentialTouch, c.CredentialsTouched, credentials.reads_of_touch, credentials.decide_touch),
    _rule(
        c.BrowserSessionCreate,
        c.BrowserSessionCreated,
        browser_sessions.reads_of_create,
        browser_sessions.decide_create,
    ),
    _rule(
        c.BrowserSessionDelete,
        c.BrowserSessionsDeleted,
        browser_sessions.reads_of_delete,
        browser_sessions.decide_delete,
    ),
    _rule(
        c.BrowserSessionTouch,
        c.BrowserSessionsTouched,
        browser_sessions.reads_of_touch,
        browser_sessions.decide_touch,
    ),
    _rule(c.NamespaceCreate, c.NamespaceCreated, namespaces.reads_of_namespace, namespaces.decide_create),
    _rule(c.NamespaceDelete, c.NamespaceDeleted, namespaces.reads_of_namespace, namespaces.decide_delete),
    _rule(c.WorkflowRegister, c.WorkflowsRegistered, workflows.reads_of_register, workflows.decide_register),
    _rule(c.TopicPublish, c.TopicPublished, topics.reads_of_publish, topics.decide_publish),
    _rule(c.TopicRemove, c.TopicRemoved, topic_removal.reads_of_remove, topic_removal.decide_remove),
    _rule(c.TopicDeliver, c.TopicDelivered, topic_delivery.reads_of_deliver, topic_delivery.decide_deliver),
    _rule(c.TriggerPut, c.TriggerStored, triggers.reads_of_put, triggers.decide_put),
    _rule(c.TriggerFire, c.TriggerFired, triggers.reads_of_fire, triggers.decide_fire),
    _rule(c.TriggerPause, c.TriggerStored, triggers.reads_of_named, triggers.decide_pause),
    _rule(c.TriggerResume, c.TriggerStored, triggers.reads_of_named, triggers.decide_resume),
    _rule(c.TriggerRemove, c.TriggerRemoved, triggers.reads_of_named, triggers.decide_remove),
    _rule(c.SinkRegister, c.SinkRegistered, sinks.reads_of_named, sinks.decide_register),
    _rule(c.SinkRemove, c.SinkRemoved, sinks.reads_of_named, sinks.decide_remove),
    _rule(c.OutboxFlush, c.OutboxFlushed, outbox.reads_of_flush, outbox.decide_flush),
    _rule(c.OutboxRead, c.OutboxBatch, sink_batches.reads_of_read, sink_batches.decide_read),
    _rule(c.OutboxSettle, c.OutboxSettled, outbox.reads_of_settle, outbox.decide_settle),
    _rule(c.OutboxSweep, c.OutboxSwept, outbox.reads_of_sweep, outbox.decide_sweep),
    _rule(c.DeadLetterReplay, c.DeadLettersReplayed, outbox.reads_of_replay, outbox.decide_replay),
)

RULES: Final[Mapping[type[c.Command[Any]], Rule]] = {rule.command: rule for rule in _ALL}
"""Rules by command class. `job.execute` has no rule: it is a claim, a body and a settle."""

_BY_TYPE: Final[Mapping[str, type[c.Command[Any]]]] = {
    **{rule.command.type: rule.command for rule in _ALL},
    c.JobExecute.type: c.JobExecute,
}
_REPLIES: Final = {rule.command: rule.reply for rule in _ALL} | {c.JobExecute: c.JobExecuted}


def command_from(data: object) -> c.Command[object]:
    """Return the command that JSON data describes. Raises InvalidCommandError."""
    if not isinstance(data, dict):
        raise InvalidCommandError("a command is a JSON object with a `type`")
    fields = dict(cast("dict[str, object]", data))
    kind = _BY_TYPE.get(str(fields.pop("type", None)))
    if kind is None:
        raise InvalidCommandError(f"a command's `type` is one of: {', '.join(sorted(_BY_TYPE))}")
    return from_data(fields, kind)


def reply_type(command: type[c.Command[Any]]) -> type:
    """Return the class of the replies to a command class."""
    return _REPLIES[command]
