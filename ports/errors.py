"""Every error that Holdfast raises on purpose. Each has a stable `code` and a section in the docs."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

from holdfast.ports.durations import Duration, length_of
from holdfast.ports.similar_names import similar_names


class HoldfastError(Exception):
    """The base class of all errors of Holdfast."""

    code: ClassVar[str] = "holdfast"


# Errors of the caller: the same call will be refused again. -----------------------------------------------------


class CommandError(HoldfastError):
    """A command was refused and changed nothing. Dispatching it again unchanged will not help."""

    code = "command"


class InvalidCommandError(CommandError):
    """A command, or a value in it, is malformed."""

    code = "invalid_command"


class UnreadableRowError(CommandError):
    """A stored row can't be read: it is damaged, or a newer version of Holdfast has written it.

    `table` and `column` say where; `run` is the key of its run, "" if it belongs to none.
    """

    code = "unreadable_row"

    def __init__(self, table: str, run: str, column: str, why: str) -> None:
        of_run = f" of the run with the key {run}" if run else ""
        super().__init__(
            f"{table} has a row{of_run} whose column {column!r} can't be read: {why}. A newer version has written it,"
            " or it is damaged: deploy that version, or repair the row and resume the run, or end it with"
            " `holdfast run terminate`"
        )
        self.table = table
        self.run = run
        self.column = column
        self.why = why


class RunNotFoundError(CommandError):
    """There is no such run in this namespace."""

    code = "run_not_found"

    def __init__(self, run_id: str, generation: int | None = None) -> None:
        self.run_id = run_id
        self.generation = generation
        what = "" if generation is None else f"generation {generation} of "
        super().__init__(f"there is no {what}run {run_id!r}; `holdfast run list` lists the runs")


class RunExistsError(CommandError):
    """A run with this id exists, and the command did not allow for that."""

    code = "run_exists"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"a run with the id {run_id!r} already exists: choose another id, or get the existing run with"
            " if_exists='return' (on the command line: --if-exists return)"
        )


class ConcurrencyFullError(CommandError):
    """A start was refused: as many runs of its concurrency key are open as may be."""

    code = "concurrency_full"

    def __init__(self, message: str, *, key: str | None = None, newest: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        """The concurrency key; None if the start of a child run was refused."""
        self.newest = newest
        """The id of the newest open run of the key; None if the start of a child run was refused."""

    @classmethod
    def of(cls, key: str, *, limit: int, waiting: int, newest: str | None) -> "ConcurrencyFullError":
        """Return the error for a key with these bounds."""
        named = "" if newest is None else f", the newest of them {newest!r}"
        return cls(
            f"the concurrency key {key!r} is full: {limit} of its runs may be under way and {waiting} may wait, and so"
            f" many are open{named}; start it once one has ended, or with another `full` of its Concurrency",
            key=key,
            newest=newest,
        )


class QuotaExceededError(CommandError):
    """A start was refused: its namespace has as many active runs, or recent starts, as it may have."""

    code = "quota_exceeded"

    def __init__(self, namespace: str, quota: str, limit: int) -> None:
        self.namespace = namespace
        self.quota = quota
        """`max_active_runs` or `max_starts_per_minute`."""
        self.limit = limit
        """The quota."""
        what, when = (
            (f"{limit:,} of its runs may be active", "start it once one has ended")
            if quota == "max_active_runs"
            else (f"{limit:,} of its runs may start in a minute", "start it later")
        )
        super().__init__(
            f"the namespace {namespace!r} has used up its quota {quota}: {what}; {when}, or let an operator raise it"
            f" with `holdfast namespace create {namespace} --{quota.replace('_', '-')} N`, which also sets the note and"
            " the other quota"
        )


class NamespaceInUseError(CommandError):
    """A namespace can't be deleted: it has runs, schedules, triggers, sinks or topics."""

    code = "namespace_in_use"

    def __init__(self, namespace: str, contents: Sequence[str]) -> None:
        self.namespace = namespace
        self.contents = tuple(contents)
        """What it has: `runs`, `schedules`, `triggers`, `sinks`, `topics`."""
        super().__init__(
            f"the namespace {namespace!r} has {' and '.join(contents)}: remove them first, or delete it with all of"
            f" them by `engine.namespaces.delete({namespace!r}, purge=True)`, on the command line with --purge"
        )


class TopicInUseError(CommandError):
    """A topic can't be removed: runs have subscribed to it, or triggers wait for its messages."""

    code = "topic_in_use"

    def __init__(self, topic: str, users: Sequence[str]) -> None:
        self.topic = topic
        self.users = tuple(users)
        """What uses it: `subscriptions`, `triggers`."""
        super().__init__(
            f"the topic {topic!r} has {' and '.join(users)}: end the runs that have subscribed, and remove its triggers"
        )


class RateExceededError(CommandError):
    """A start was refused: its rate of starts is used up, and refuses what is beyond it."""

    code = "rate_exceeded"

    def __init__(self, message: str, *, name: str | None = None, fits_at: int | None = None) -> None:
        super().__init__(message)
        self.name = name
        """The name of the rate, as `engine.limits` has it; None if the start of a child run was refused."""
        self.fits_at = fits_at
        """When the start would fit if nothing else starts until then, in microseconds since 1970."""

    @classmethod
    def of(
        cls, name: str, *, used: int, limit: int, period: int, units: int, fits_at: int
    ) -> "RateExceededError":
        """Return the error of a rate, with its period in microseconds."""
        costs = "" if units == 1 else f", and this start costs {units:,}"
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=fits_at)
        return cls(
            f"the rate {name} is used up: {used:,} of {limit:,} units in any {period / 1_000_000:g} s count"
            f" already{costs}; start it again at {at:%Y-%m-%dT%H:%M:%S.%fZ}, or use over='wait', with which it waits",
            name=name,
            fits_at=fits_at,
        )


class UnknownWorkflowError(CommandError):
    """This process does not have the workflow, or not in this version."""

    code = "unknown_workflow"

    def __init__(self, workflow: str, version: str | None = None, known: Sequence[str] = ()) -> None:
        """`known` has the definitions that are registered, `<workflow>@<version>`: the error names a similar one."""
        self.workflow = workflow
        self.version = version
        named = workflow if version is None else f"{workflow}@{version}"
        names = known if version is not None else [one.rpartition("@")[0] for one in known]
        super().__init__(
            f"the workflow {named!r} is not registered; pass it to Engine.open(..., workflows=[...])"
            f"{similar_names(named, names)}"
        )


class UnknownPlanError(CommandError):
    """A run names a plan that is not stored."""

    code = "unknown_plan"

    def __init__(self, plan: str) -> None:
        self.plan = plan
        super().__init__(
            f"plan {plan!r} is not stored; create runs through an engine that knows the workflow"
        )


class RemoveRefusedError(CommandError):
    """A run can't be removed now: it has not ended, or a delivery or a cancellation of external work is pending."""

    code = "remove_refused"

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(f"run {run_id!r} can't be removed: {reason}")


class RerunRefusedError(CommandError):
    """A run can't be run again from there: the plan has no such stage, or something before it has no output."""

    code = "rerun_refused"

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(f"the rerun of run {run_id!r} was refused: {reason}")


class SignalRefusedError(CommandError):
    """A signal was sent to a run that can't receive it: the run has ended, or is a pipeline."""

    code = "signal_refused"

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        self.why = why
        receiver = f" to run {run_id!r}" if run_id else ""
        super().__init__(f"the message{receiver} was refused: {why}")


class ChannelClosedError(SignalRefusedError):
    """A channel is closed: no message can be sent to it, or received from it, any more in this generation.

    Raised for a sender, and in the run's function, where `run_id` is empty.
    """

    code = "channel_closed"

    def __init__(self, run_id: str, channel: str) -> None:
        self.channel = channel
        super().__init__(
            run_id,
            f"its function has closed channel {channel!r} and is about to end. To send the message to the next"
            ' generation of the run, use start(..., if_active="return", if_ended="rerun", signals=[...])',
        )
        if not run_id:
            self.args = (f"channel {channel!r} is closed: it delivers no more messages in this generation",)


class CompletionNotFoundError(CommandError):
    """No run has a completion with this token, or its run has continued as a new generation since."""

    code = "completion_not_found"

    def __init__(self) -> None:
        super().__init__("no run has a completion with this token now; use `completion.token` as it is")


class AlreadyCompletedError(CommandError):
    """A completion has its value, or has failed: it takes no other outcome."""

    code = "already_completed"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} has received the outcome of this completion already")


class CompletionFailedError(HoldfastError):
    """A completion was failed from outside, instead of getting a value. Raised in the run's function."""

    code = "completion_failed"

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class UnreadMessagesError(CommandError):
    """A function closes a channel with messages that it has not received yet; it has to receive them first.

    Nothing is closed. Raised in the function, where it awaits `channel.close()`.
    """

    code = "unread_messages"

    def __init__(self, channel: str) -> None:
        self.channel = channel
        super().__init__(f"channel {channel!r} has unread messages: receive them before you close it")


class UnknownChannelError(SignalRefusedError):
    """The function that a message is for has no channel of that name."""

    code = "unknown_channel"


class UpdateRefusedError(CommandError):
    """An update was sent to a run that can't receive it: the run has ended, or is a pipeline."""

    code = "update_refused"

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        self.why = why
        super().__init__(f"the update of run {run_id!r} was refused: {why}")


class IdempotencyConflictError(CommandError):
    """An idempotency key was used before, with another command."""

    code = "idempotency_conflict"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the idempotency key {key!r} was used for a different command; use a new key")


class SessionLostError(CommandError):
    """A worker session was declared dead. Its attempts are void; open a new session."""

    code = "session_lost"

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session!r} is dead or unknown; open a new one")


class LeaseLostError(CommandError):
    """A task of a remote worker is not its own any more: its lease ended, or its run did. Nothing was stored."""

    code = "lease_lost"

    def __init__(self) -> None:
        super().__init__(
            "the worker does not hold this task: its lease has ended and another worker may have it, its step was"
            " cancelled, or the token is not one of its own; drop the outcome"
        )


class NothingToWakeError(CommandError):
    """No stage of that name or key waits for external work, or is about to."""

    code = "nothing_to_wake"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"nothing waits for {what!r}: it is done, was never suspended, or has not started yet"
        )


class ScheduleExistsError(CommandError):
    """A schedule of this name exists."""

    code = "schedule_exists"

    def __init__(self, schedule: str) -> None:
        self.schedule = schedule
        super().__init__(f"the schedule {schedule!r} exists: update it, or choose another name")


class ScheduleNotFoundError(CommandError):
    """There is no such schedule in this namespace."""

    code = "schedule_not_found"

    def __init__(self, schedule: str) -> None:
        self.schedule = schedule
        super().__init__(f"there is no schedule {schedule!r}; `holdfast schedule list` lists the schedules")


class TriggerNotFoundError(CommandError):
    """There is no such trigger in this namespace."""

    code = "trigger_not_found"

    def __init__(self, trigger: str) -> None:
        self.trigger = trigger
        super().__init__(f"there is no trigger {trigger!r}; `holdfast trigger list` lists the triggers")


class SinkCursorError(CommandError):
    """A client continues to read a sink at a place that is not that of its last batch."""

    code = "sink_cursor"

    def __init__(self, sink: str, why: str) -> None:
        self.sink = sink
        super().__init__(
            f"the sink {sink!r} can't be read on from this cursor, as {why}: another client reads it too, or this one "
            "went back. Without a cursor, reading continues after what was acknowledged"
        )


class SinkExistsError(CommandError):
    """A sink of this name is registered for other types of events."""

    code = "sink_exists"

    def __init__(self, sink: str, types: tuple[str, ...]) -> None:
        self.sink = sink
        self.types = types
        gets = ", ".join(types) or "all types"
        super().__init__(
            f"the sink {sink!r} is already registered for {gets}: use these types, choose another name, or "
            "remove it first, with its pending events"
        )


class SinkNotFoundError(CommandError):
    """There is no such sink in this namespace."""

    code = "sink_not_found"

    def __init__(self, sink: str) -> None:
        self.sink = sink
        super().__init__(f"there is no sink {sink!r}; `holdfast sink list` lists the sinks")


class CredentialExistsError(CommandError):
    """Another credential has the label, or, for the first one, any credential exists."""

    code = "credential_exists"


class CredentialNotFoundError(CommandError):
    """There is no credential with this id or label that is not revoked."""

    code = "credential_not_found"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no valid key {name!r}; `holdfast key list` lists the keys")


class StorageRefusedError(CommandError):
    """The store refused one command's data, for a reason that will not go away."""

    code = "storage_refused"


class InvalidArgumentError(HoldfastError, TypeError, ValueError):
    """A function of Holdfast received an invalid argument. Nothing was done.

    It is a TypeError and a ValueError too, so that code which expects Python's own errors catches it.
    """

    code = "invalid_argument"

    def __init__(self, argument: str, message: str) -> None:
        self.argument = argument
        super().__init__(message)


class UnknownZoneError(InvalidArgumentError):
    """The time zone database has no zone of this name."""

    code = "unknown_zone"

    def __init__(self, zone: str, version: str, advice: str) -> None:
        super().__init__("zone", f"there is no time zone {zone!r} in tzdata {version}{advice}")
        self.zone = zone
        self.advice = advice


class DefinitionError(HoldfastError):
    """A workflow, or the time of a schedule, is defined incorrectly. Raised at its definition, never when it runs."""

    code = "definition"


class InvalidValueError(HoldfastError):
    """A value does not have the declared type.

    `what` names the type or the purpose of the value. `problems` lists what is wrong, each with its path.
    """

    code = "invalid_value"

    def __init__(self, what: str, problems: tuple[str, ...]) -> None:
        self.what = what
        self.problems = problems
        super().__init__(f"invalid value for {what}: " + "; ".join(problems))


class UnstorableValueError(HoldfastError):
    """A value can't be stored as JSON. `path` is the place in the value, `reason` the cause."""

    code = "unstorable_value"

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"the value can't be stored: {path}: {reason}")


# Errors of the store or a service. -------------------------------------------------------------------------------


class EngineClosedError(HoldfastError):
    """An engine was used after it was closed, or closed during a wait."""

    code = "engine_closed"

    def __init__(
        self,
        what: str = "the engine is closed",
        do: str = "open it again with `async with engine:` or `with engine.sync:`",
    ) -> None:
        super().__init__(f"{what}; {do}")


class BlockedLoopError(HoldfastError):
    """A blocking call was made in the event loop of the engine's own worker, and would wait for ever."""

    code = "blocked_loop"

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call} of `engine.sync` would block the event loop of this engine's worker, and so wait for ever: await"
            " the engine's own method instead, or make the call in a thread, as `await anyio.to_thread.run_sync(...)`"
            " does"
        )


class ForkedStoreError(HoldfastError):
    """A store can't be used in a forked child: it lives in the parent's memory, or the parent was in a transaction."""

    code = "forked_store"


class ConflictError(HoldfastError):
    """A unique row exists already. `transact` runs its work again, which then finds the row."""

    code = "conflict"


class UnavailableError(HoldfastError):
    """The store or a service could not be reached in time. Nothing acknowledged is lost; try again later."""

    code = "unavailable"


class ReadTimeoutError(UnavailableError):
    """A read of the store took longer than its limit, and was stopped. It changed nothing; ask for less at a time."""

    code = "read_timeout"


class AccessDeniedError(HoldfastError):
    """The store denied access to this user, or an operation. Nothing was stored; retrying does not help.

    Running workers continue once access is granted. A client of a server and a remote worker raise it if the server
    refuses their key.
    """

    code = "access_denied"


class StorageFullError(UnavailableError):
    """The store's disk is full. Nothing acknowledged is lost; workers continue once there is free space."""

    code = "storage_full"


class SinkUnavailableError(UnavailableError):
    """A sink can't accept events now.

    `retry_after` is how many seconds to leave it alone. `taken` is how many of the events, from the first on, it
    accepted before the failure: these are not delivered again.
    """

    code = "sink_unavailable"

    def __init__(self, message: str, retry_after: float = 0.0, taken: int = 0) -> None:
        self.retry_after = retry_after
        self.taken = taken
        super().__init__(message)


class TooManyFailuresError(HoldfastError):
    """Too many authentications of one address have failed within a minute."""

    code = "too_many_failures"

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after
        """In seconds."""
        super().__init__(
            f"too many requests of this address had no valid key or token: try again in {retry_after:.0f} s"
        )


class ForeignOriginError(HoldfastError):
    """A browser's request that needs no key names another site in `Host`, `Origin` or `Sec-Fetch-Site`.

    It needs none because the server has no credentials, or because it has the cookie of a person who has signed in.
    """

    code = "foreign_origin"

    def __init__(self, header: str, value: str) -> None:
        self.header = header
        self.value = value
        super().__init__(
            f"{header} is {value!r:.200}, which is not this server: open it at its own address; a program sends a key, "
            "which `holdfast key create` creates"
        )


class UnprotectedAddressError(HoldfastError):
    """A server without credentials would listen beyond this machine."""

    code = "unprotected_address"

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"there is no key and no issuer of tokens, so everyone who reaches {address} could do everything: create a "
            "key with `holdfast key create`, or listen on 127.0.0.1"
        )


class ServerAnswerError(HoldfastError):
    """An answer to a client is not one that it can use: a bug, another version, or not a server of Holdfast."""

    code = "server_answer"

    def __init__(self, status: int, server_code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        """The status of the answer."""
        self.server_code = server_code
        """The code of its problem; "" if it had none."""


class EventRefusedError(HoldfastError):
    """A sink will never accept this event. Raised by sinks; the stream is then dead-lettered."""

    code = "event_refused"


class RefusedError(HoldfastError):
    """The store refused the data of a transaction. Nothing was stored, and retrying does not help."""

    code = "refused"


class InvalidOverrideError(HoldfastError):
    """The `overrides` of a start are invalid for a stage. Nothing was stored."""

    code = "invalid_override"

    def __init__(self, stage: str, reason: str) -> None:
        self.stage = stage
        self.reason = reason
        super().__init__(f"overrides: stage {stage!r} {reason}")


class SchemaError(HoldfastError):
    """The database's tables are missing, or too old or too new for this version of Holdfast."""

    code = "schema"


STORE_ERRORS: Final = (UnavailableError, AccessDeniedError, SchemaError)
"""The errors that are faults of the store, not of a request: a long-lived process retries after them."""


class BlobMissingError(HoldfastError):
    """A blob does not exist."""

    code = "blob_missing"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"there is no blob {key!r}")


class BlobCorruptError(HoldfastError):
    """A blob's bytes do not have the hash under which they were stored."""

    code = "blob_corrupt"

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"blob {key!r} is corrupt: its bytes do not match its sha256")


class NoBlobStoreError(HoldfastError):
    """A value is in a blob, or has to be put into one, and this process has no blob store."""

    code = "no_blob_store"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what!r} needs a blob store; open the engine with blobs='file:///a/folder'")


class InvalidFilterError(HoldfastError):
    """A filter for runs is invalid. The store was not queried."""

    code = "invalid_filter"

    def __init__(self, option: str, reason: str) -> None:
        self.option = option
        self.reason = reason
        super().__init__(f"invalid filter: {option} {reason}")


class ArtifactMissingError(HoldfastError):
    """No artifact has this name, or several do."""

    code = "artifact_missing"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"no artifact {name!r}: {reason}")


class ResultMissingError(HoldfastError):
    """A run has no such step or stage, or several calls of the step, or it has no result."""

    code = "result_missing"

    def __init__(self, run_id: str, point: str, reason: str) -> None:
        self.run_id = run_id
        self.point = point
        super().__init__(f"run {run_id!r} has no result of {point!r}: {reason}")


class InvalidMessageError(HoldfastError):
    """A message names no job and will never be usable: move it to a dead-letter queue."""

    code = "invalid_message"


class InvalidUrlError(HoldfastError):
    """A URL names no known kind of store."""

    code = "invalid_url"


class InvalidNamespaceError(HoldfastError):
    """A namespace is too long, or has characters that blob keys can't have."""

    code = "invalid_namespace"

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        super().__init__(
            f"{namespace[:200]!r} is not a namespace: use 1 to 200 of A-Z a-z 0-9 _ . @ = + -, the first of them a"
            " letter, a digit or _"
        )


class InvalidKeyError(HoldfastError):
    """A blob key is malformed: empty, too long, or it would leave the store's root."""

    code = "invalid_key"


# Errors in the body of a stage. ---------------------------------------------------------------------------------


class OutputMissingError(HoldfastError):
    """A stage requested an output that does not exist."""

    code = "output_missing"

    def __init__(self, stage: str, reason: str) -> None:
        self.stage = stage
        super().__init__(f"there is no output of stage {stage!r}: {reason}")


class GiveUp(HoldfastError):  # noqa: N818  # it is raised to say what to do, as StopIteration is
    """Raised by a body: do not retry, however many attempts are left."""

    code = "give_up"


class CancelRun(HoldfastError):  # noqa: N818  # as above
    """Raised by a durable function: its run ends as cancelled, with this reason. Compensations run first."""

    code = "cancel_run"


class RetryAfter(HoldfastError):  # noqa: N818  # as above
    """Raised by a body: retry, but not before `wait` has passed. At most seven days; a longer wait is cut to that.

    If raised `from` an error for which `by_error` has a rule, it counts as that error.
    """

    code = "retry_after"

    def __init__(self, wait: Duration, why: str = "") -> None:
        length = length_of(wait)
        if length is None:
            raise InvalidArgumentError(
                "wait", f"RetryAfter: wait is {wait!r}; it must be a timedelta or a number of seconds"
            )
        self.wait = length
        super().__init__(why or f"retry after {length}")


class InvalidEventError(HoldfastError):
    """A stage published an invalid event: not of a valid type, too large, or one too many."""

    code = "invalid_event"


class StageCancelledError(HoldfastError):
    """The body should stop: its result would be discarded."""

    code = "stage_cancelled"

    def __init__(self, run_id: str, stage: str) -> None:
        self.run_id = run_id
        self.stage = stage
        super().__init__(f"stage {stage!r} of run {run_id!r} must stop")


# Ends of runs, and errors in durable functions. -----------------------------------------------------------------


class RunFailedError(HoldfastError):
    """The run failed. `error` names the stage and the cause."""

    code = "run_failed"

    def __init__(self, run_id: str, error: str) -> None:
        self.run_id = run_id
        self.error = error
        super().__init__(f"run {run_id!r} failed: {error}")


class RunCancelledError(HoldfastError):
    """The run was cancelled before it had a result."""

    code = "run_cancelled"

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(f"run {run_id!r} was cancelled" + (f": {reason}" if reason else ""))


class NotDurableError(HoldfastError):
    """A durable function made a call that no replay can repeat. Move it into a step."""

    code = "not_durable"

    def __init__(self, name: str, why: str = "", do: str = "") -> None:
        reason = why or "has an outside effect: its result is not recorded, and a replay would repeat it"
        advice = do or "Make it a step: a function with @step, and await that"
        super().__init__(f"{name} in a workflow {reason}. {advice}")
        self.name = name


class WorkflowStalledError(HoldfastError):
    """A durable function never waits: it runs without awaiting a step, a timer or a message.

    It ran so many `callbacks` in a row, or computed for so many `seconds`, and was at `site` then.
    """

    code = "workflow_stalled"

    def __init__(self, callbacks: int = 0, *, seconds: float = 0.0, site: str = "") -> None:
        if seconds:
            where = f", and is at {site}" if site else ""
            message = (
                f"the function has computed for {seconds:g} seconds without an await{where}; move that into a step, or"
                " look for an endless loop. Its thread runs until the computation ends"
            )
        else:
            message = (
                f"the function has made {callbacks:,} turns without waiting for a step, a timer or a message; look for"
                " a loop that only awaits asyncio.sleep(0), or a lock that is never released"
            )
        super().__init__(message)


class NondeterminismError(HoldfastError):
    """The code of a durable function makes other calls than its history records. The run is blocked until they fit."""

    code = "nondeterminism"

    def __init__(self, *, row: int, call: str, recorded: str, requested: str) -> None:
        named = f" as call {call}" if call else ""
        super().__init__(
            f"row {row} of the history records {recorded}{named}, but {requested}. The code was changed while the"
            " run was in progress, or is not deterministic: deploy code that matches the history, or run"
            " again from there"
        )
        self.row = row
        self.call = call
        self.recorded = recorded
        self.requested = requested


class UnreadableValueError(HoldfastError):
    """A recorded value can't be decoded by the present code. Its run is blocked until it can.

    `what` names the value, `row` is the number of its history row, None if unknown, and `problems` lists what is wrong,
    each with its path in the value.
    """

    code = "unreadable_value"

    def __init__(self, what: str, row: int | None, problems: tuple[str, ...]) -> None:
        where = "" if row is None else f", row {row} of the history,"
        super().__init__(
            f"{what}{where} can't be read by this code: {'; '.join(problems)}. It was recorded by other code: deploy"
            " code that can read it, and the run resumes automatically"
        )
        self.what = what
        self.row = row
        self.problems = problems


class UnreadableInputError(UnreadableValueError):
    """The input of a body, or a recorded value that it reads, can't be decoded by the present code."""

    code = "unreadable_input"


class ContinueRefusedError(HoldfastError):
    """A durable function can't continue as new now, because something would be lost. Raised in its code."""

    code = "continue_refused"

    def __init__(self, why: str) -> None:
        super().__init__(f"it can't continue as a new generation: {why}")
        self.why = why


class HistoryFullError(HoldfastError):
    """The history of a durable function is too long to continue. Its run is blocked."""

    code = "history_full"

    def __init__(self, rows: int, more: int) -> None:
        super().__init__(
            f"the history has {rows:,} rows, and every wake-up reads all of them: let the function continue as a"
            " new generation before that, with `return await continue_as_new(...)`, or move parts"
            " of its work to child runs; `run resume` allows this run"
            f" {more:,} more rows to finish"
        )
        self.rows = rows


class DebuggerLeftError(HoldfastError):
    """A debugger in a durable function was left, or had no terminal. The run waits until it is resumed."""

    code = "debugger_left"

    def __init__(self) -> None:
        super().__init__(
            "a debugger in the function was quit, or had no terminal: resume the run,"
            " without breakpoint() in code that runs without a terminal"
        )


class InvalidHistoryError(HoldfastError):
    """A document is not the history of a run, is in a form that this release can't read, or has nothing to replay."""

    code = "invalid_history"

    def __init__(self, problem: str) -> None:
        super().__init__(f"this history can't be used: {problem}")
        self.problem = problem


class NotExposedError(HoldfastError):
    """A query or update names something that the run's function does not expose. Nothing was stored."""

    code = "not_exposed"

    def __init__(self, run_id: str, what: str, exposed: Sequence[str], why: str = "") -> None:
        there = f"it exposes {', '.join(exposed)}" if exposed else "it has not exposed anything yet"
        super().__init__(
            f"run {run_id!r} has no {what!r}: {why or there}; its function exposes objects with holdfast.expose(...)"
        )
        self.run_id = run_id
        self.what = what
        self.exposed = tuple(exposed)


class QueryFailedError(HoldfastError):
    """A query raised an error, its `__cause__`, or did more than read. The run is unchanged."""

    code = "query_failed"

    def __init__(self, run_id: str, query: str, why: str) -> None:
        super().__init__(f"query {query!r} of run {run_id!r} has failed: {why}")
        self.run_id = run_id
        self.query = query


class UpdateRejectedError(HoldfastError):
    """An update was rejected by its validator, whose error is the `__cause__`. It was not carried out."""

    code = "update_rejected"

    def __init__(self, run_id: str, update: str, why: str) -> None:
        super().__init__(f"run {run_id!r} rejects update {update!r}: {why}")
        self.run_id = run_id
        self.update = update


class UpdateFailedError(HoldfastError):
    """An update was carried out and raised an error, which is the `__cause__`."""

    code = "update_failed"

    def __init__(self, run_id: str, update: str, why: str) -> None:
        super().__init__(f"update {update!r} of run {run_id!r} has failed: {why}")
        self.run_id = run_id
        self.update = update


class UpdateLostError(HoldfastError):
    """The run ended before an update was complete: it was not carried out, or only in part.

    For the function of another run, `why` says why there is no reply.
    """

    code = "update_lost"

    def __init__(self, run_id: str, update: str, status: str, why: str = "") -> None:
        super().__init__(
            f"update {update!r} of run {run_id!r} has no reply: {why}; it may have been carried out, in part or whole"
            if why
            else f"run {run_id!r} ended, with the status {status!r}, before update {update!r} was complete: a function"
            " that must complete all its updates has to wait for them before it returns"
        )
        self.run_id = run_id
        self.update = update


class StepFailedError(HoldfastError):
    """A step failed for good, with an error that can't be raised here. `type` is the name of its class.

    The class is unknown here, or `why` says what else prevents it: "known, but ...".
    """

    code = "step_failed"

    def __init__(self, type: str, message: str, why: str = "") -> None:
        text = f"{type}: {message}" if message else type
        super().__init__(f"{text} ({why})" if why else text)
        self.type = type
        self.message = message
        self.why = why


class StepResultError(HoldfastError):
    """A step succeeded, but its result can't be stored: it does not have the declared type, or the store refuses it.

    It is not retried; its compensation is due. `reason` says what is wrong.
    """

    code = "step_result"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the step ran, but its result can't be stored: {reason}")
        self.reason = reason


class RemoteStepError(HoldfastError):
    """A step failed for good in a remote worker: `error_code`, `error_type` and `message` are as that reported them."""

    code = "remote_step"

    def __init__(self, error_code: str, error_type: str, message: str) -> None:
        super().__init__(f"{error_type or error_code}: {message}")
        self.error_code = error_code
        self.error_type = error_type
        self.message = message


class StepLostError(HoldfastError):
    """A step may not be retried, and its last attempt was lost: it may have happened or not.

    The attempt is lost with its worker, or when no heartbeat arrives for `heartbeat_timeout`. How to allow more
    attempts is a note on the error, and no part of its message.
    """

    code = "step_lost"

    def __init__(self, step: str, attempts: int, heartbeat_timeout: timedelta | None = None) -> None:
        times = "once" if attempts == 1 else f"{attempts} times"
        how = (
            "its worker was lost"
            if heartbeat_timeout is None
            else f"it sent no heartbeat for {heartbeat_timeout}"
        )
        super().__init__(
            f"step {step!r} was attempted {times}, and the last time {how}: it may or may not have happened"
        )
        self.add_note("if it may run twice, allow more attempts: @step(retry=Retry(attempts=...))")


class NoTransactionError(HoldfastError):
    """A step needs a transaction of the run's store, which is not possible here. Its body was not called."""

    code = "no_transaction"

    def __init__(self, why: str) -> None:
        super().__init__(f"a step can't run in a transaction: {why}")


class TransactionEndedError(HoldfastError):
    """A step's body ended its transaction. What it did after that is rolled back."""

    code = "transaction_ended"

    def __init__(self) -> None:
        super().__init__(
            "a step's body can't end its transaction, which is committed with its result: leave out `commit()` and"
            " `rollback()`, raise to have it rolled back, and use `begin_nested()` for a part of it"
        )


class InvalidTransactionError(HoldfastError):
    """A transaction of the application can't take commands: none is open, or it has failed, or it is read-only."""

    code = "invalid_transaction"

    def __init__(self, why: str) -> None:
        super().__init__(f"the connection's transaction can't be used: {why}")


class WrongStoreError(HoldfastError):
    """A connection of the application leads to another database than the store of the engine. Nothing was stored."""

    code = "wrong_store"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the transaction is not one of the store: {why}; use a connection to the database that the engine opens"
        )


class CompensationError(HoldfastError):
    """A function's compensation is not possible without help. Its run is blocked until an operator has looked at it."""

    code = "compensation_failed"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} can't be compensated: {why}")


class ChildRefusedError(HoldfastError):
    """A function's child run can't be started: its id belongs to another run, or an option does not fit."""

    code = "child_refused"

    def __init__(self, run_id: str, why: str, *, is_taken: bool = True) -> None:
        """`is_taken`: another run exists with this id."""
        advice = "; choose another id" if is_taken else ""
        super().__init__(f"run {run_id!r} can't be started: {why}{advice}")
        self.run_id = run_id
