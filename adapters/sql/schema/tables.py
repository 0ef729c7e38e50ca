"""Definitions of the tables, as the code uses them. Migrations create them; a test compares the two.

Text that is compared is compared bytewise, so that every database sorts keys alike. Instants are microseconds. There
are no foreign keys: every row is written under its run's lock, and each key would cost a lookup per row.
"""

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, MetaData, Table, Text, UniqueConstraint

from holdfast.adapters.sql.schema.ddl import BytewiseText

ENDED: Final = "('completed', 'failed', 'cancelled')"
"""The statuses of runs that have ended, as SQL. Partial indexes are used only by queries with exactly this text."""

NOT_UNDER_WAY: Final = "('completed', 'failed', 'cancelled', 'pending')"
"""The statuses of runs without a slot, as SQL. Partial indexes are used only by queries with exactly this text."""

WAITS_FOR_TURN: Final = "turn IS NOT NULL AND epoch = 0 AND state IN ('queued', 'limited')"
"""The condition of `Job.waits_for_turn`, as SQL. The partial index is used only by queries with exactly this text."""

metadata: Final = MetaData()


def _key(name: str) -> Column[str]:
    return Column(name, BytewiseText(), primary_key=True)


def _name(name: str, *, nullable: bool = False) -> Column[str]:
    """Return a column for text that is compared."""
    return Column(name, BytewiseText(), nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    """Return a column for text that is only stored."""
    return Column(name, Text(), nullable=nullable)


def _number(name: str, *, nullable: bool = False, key: bool = False) -> Column[int]:
    return Column(name, BigInteger(), nullable=nullable, primary_key=key, autoincrement=False)


def _index(name: str, *columns: Column[Any], where: str | None = None, unique: bool = False) -> None:
    """Add an index. With a condition it is a partial one, where the database has such (`ddl.partial`)."""
    Index(name, *columns, unique=unique, info={} if where is None else {"where": where})


runs: Final = Table(
    "holdfast_runs",
    metadata,
    _key("key"),
    _name("namespace"),
    _name("id"),
    _number("generation"),
    _name("workflow"),
    _name("version"),
    _name("plan"),
    _name("status"),
    _name("queue"),
    _number("priority"),
    _number("created_at"),
    _number("updated_at"),
    _number("ended_at", nullable=True),
    _number("last_row"),
    _number("last_job"),
    _number("open_jobs"),
    _text("progress"),
    _text("result", nullable=True),
    _text("error", nullable=True),
    _text("attributes", nullable=True),
    _name("rerun_of", nullable=True),
    _name("rerun_from", nullable=True),
    _text("inherited", nullable=True),
    _number("start_at", nullable=True),
    _number("deadline", nullable=True),
    _name("concurrency_key", nullable=True),
    _number("concurrency_limit", nullable=True),
    _number("concurrency_waiting", nullable=True),
    _text("concurrency_full", nullable=True),
    _text("concurrency_outer", nullable=True),
    _name("parent", nullable=True),
    _name("parent_run", nullable=True),
    _name("close_policy"),
    _number("children"),
    _number("queue_position"),
    _text("mailbox", nullable=True),
    _text("scheduled", nullable=True),
    _number("reported_row"),
    _text("gathered", nullable=True),
    _name("rate_key", nullable=True),
    _number("rate_limit", nullable=True),
    _number("rate_period", nullable=True),
    _number("rate_units", nullable=True),
    _number("rate_counted_at", nullable=True),
    _number("in_rate_line"),
    _text("headers", nullable=True),
    UniqueConstraint("namespace", "id", "generation", name="holdfast_runs_name"),
)
# Lists read one of the next three indexes, or attributes. Of their columns only the status ever changes. Settling a job
# usually leaves it as it is, so that PostgreSQL writes no index; a change affects the index of active runs anyway.
_index("holdfast_runs_listed", runs.c.namespace, runs.c.created_at, runs.c.key)
_index(
    "holdfast_runs_by_workflow",
    runs.c.namespace,
    runs.c.workflow,
    runs.c.status,
    runs.c.created_at,
    runs.c.key,
)
_index("holdfast_runs_by_status", runs.c.namespace, runs.c.status, runs.c.created_at, runs.c.key)
_index(
    "holdfast_runs_active",
    runs.c.key,
    where=f"status NOT IN {ENDED}",
)

# Only later generations: the index finds runs that have a newer one.
_index(
    "holdfast_runs_rerun",
    runs.c.namespace,
    runs.c.id,
    runs.c.generation,
    where="generation > 1",
)
_index(
    "holdfast_runs_children",
    runs.c.parent,
    where=f"parent IS NOT NULL AND status NOT IN {ENDED}",
)
# Only child runs, in the order of lists.
_index(
    "holdfast_runs_of_parent",
    runs.c.namespace,
    runs.c.parent_run,
    runs.c.created_at,
    runs.c.key,
    where="parent_run IS NOT NULL",
)

_index(
    "holdfast_runs_start",
    runs.c.start_at,
    where="status = 'pending' AND start_at IS NOT NULL",
)
_index(
    "holdfast_runs_start_of_namespace",
    runs.c.namespace,
    runs.c.start_at,
    where="status = 'pending' AND start_at IS NOT NULL",
)
_index(
    "holdfast_runs_waiting",
    runs.c.namespace,
    runs.c.concurrency_key,
    runs.c.queue_position,
    runs.c.key,
    where="status = 'pending' AND start_at IS NULL AND concurrency_key IS NOT NULL AND in_rate_line = 0",
)
_index(
    "holdfast_runs_rated",
    runs.c.namespace,
    runs.c.rate_key,
    runs.c.queue_position,
    runs.c.key,
    where="status = 'pending' AND start_at IS NULL AND in_rate_line = 1",
)
_index(
    "holdfast_runs_slots",
    runs.c.namespace,
    runs.c.concurrency_key,
    where=f"status NOT IN {NOT_UNDER_WAY} AND concurrency_key IS NOT NULL",
)
# Starts under a bound count the open runs of their key, whatever keeps those, and find the oldest of them.
_index(
    "holdfast_runs_of_key",
    runs.c.namespace,
    runs.c.concurrency_key,
    runs.c.created_at,
    runs.c.key,
    where=f"status NOT IN {ENDED} AND concurrency_key IS NOT NULL",
)
_index(
    "holdfast_runs_deadline",
    runs.c.deadline,
    where=f"status NOT IN {ENDED} AND deadline IS NOT NULL",
)

attributes: Final = Table(
    "holdfast_attributes", metadata, _key("pair"), _number("created_at", key=True), _key("run")
)
"""An index of attributes and values of annotations, in the order of lists. One row for each attribute of each run, and
for each value of its annotations by which it is found.

`pair` is a digest of namespace and name, and then the value, so that a range of values is a range of keys (see
`ports.search_values`).
"""

_index("holdfast_attributes_of_run", attributes.c.run)

jobs: Final = Table(
    "holdfast_jobs",
    metadata,
    _key("run"),
    _number("number", key=True),
    _name("namespace"),
    _name("queue"),
    _name("definition"),
    _name("kind"),
    _name("node"),
    _number("item", nullable=True),
    _name("state"),
    _number("priority"),
    _number("wake_at", nullable=True),
    _number("epoch"),
    _number("attempts"),
    _number("max_attempts"),
    _name("session", nullable=True),
    _number("leased_at", nullable=True),
    _number("lost_attempts"),
    _text("input"),
    _number("timeout_total", nullable=True),
    _number("first_claimed_at", nullable=True),
    _number("heartbeat_timeout", nullable=True),
    _number("heartbeat_by", nullable=True),
    _name("concurrency_key", nullable=True),
    _number("concurrency_limit", nullable=True),
    _name("waiting_for", nullable=True),
    _number("check_after", nullable=True),
    _number("give_up_at", nullable=True),
    _number("queue_position"),
    _number("rate_limit", nullable=True),
    _number("rate_period", nullable=True),
    _number("turn", nullable=True),
)
_index(
    "holdfast_jobs_claim",
    jobs.c.namespace,
    jobs.c.queue,
    jobs.c.definition,
    jobs.c.queue_position,
    jobs.c.run,
    jobs.c.number,
    where="state = 'queued'",
)
_index(
    "holdfast_jobs_sleeping",
    jobs.c.wake_at,
    where="state = 'sleeping'",
)
# Counts of queues go through it; only jobs that fall asleep or wake pay for it.
_index(
    "holdfast_jobs_sleeping_of_queue",
    jobs.c.namespace,
    jobs.c.queue,
    jobs.c.definition,
    where="state = 'sleeping'",
)
_index(
    "holdfast_jobs_leased",
    jobs.c.session,
    where="state = 'leased'",
)

_index(
    "holdfast_jobs_heartbeat",
    jobs.c.heartbeat_by,
    where="heartbeat_by IS NOT NULL",
)
_index(
    "holdfast_jobs_limited",
    jobs.c.namespace,
    jobs.c.concurrency_key,
    jobs.c.queue_position,
    jobs.c.run,
    jobs.c.number,
    where="state = 'limited'",
)
_index(
    "holdfast_jobs_slots",
    jobs.c.namespace,
    jobs.c.concurrency_key,
    where="state IN ('queued', 'leased') AND concurrency_key IS NOT NULL",
)
# Separate from the slots: for a rate limit only jobs that may start count, however many run.
_index(
    "holdfast_jobs_rate_limited",
    jobs.c.namespace,
    jobs.c.concurrency_key,
    where="state = 'queued' AND rate_limit IS NOT NULL",
)
_index(
    "holdfast_jobs_turns",
    jobs.c.namespace,
    jobs.c.queue,
    jobs.c.definition,
    jobs.c.turn,
    jobs.c.run,
    where=WAITS_FOR_TURN,
)
_index(
    "holdfast_jobs_external",
    jobs.c.namespace,
    jobs.c.waiting_for,
    where="kind = 'poll'",
)
_index(
    "holdfast_jobs_pending_delivery",
    jobs.c.run,
    jobs.c.number,
    where="state = 'pending_delivery'",
)

history: Final = Table(
    "holdfast_history",
    metadata,
    _key("run"),
    _number("number", key=True),
    _name("type"),
    _number("at"),
    _name("node", nullable=True),
    _number("item", nullable=True),
    _number("epoch", nullable=True),
    _text("payload", nullable=True),
    _text("blob", nullable=True),
    _text("data", nullable=True),
)

items: Final = Table(
    "holdfast_map_items", metadata, _key("run"), _key("node"), _number("page", key=True), _text("items")
)

plans: Final = Table(
    "holdfast_plans", metadata, _key("fingerprint"), _name("workflow"), _name("version"), _text("body")
)

sessions: Final = Table(
    "holdfast_sessions",
    metadata,
    _key("id"),
    _text("host"),
    _name("state"),
    _number("opened_at"),
    _number("expires_at"),
    _name("namespace"),
    _name("principal", nullable=True),
    _number("is_registered"),
)
# Without `expires_at`, which every renewal changes: each would have to write the index as well.
_index(
    "holdfast_sessions_open",
    sessions.c.id,
    where="state = 'open'",
)

registrations: Final = Table(
    "holdfast_worker_registry",
    metadata,
    _key("session"),
    _name("namespace"),
    _text("about"),
    _number("lease"),
)
"""One row for each open session that is shown to people, deleted with its end."""

_index("holdfast_worker_registry_listed", registrations.c.namespace, registrations.c.session)

replies: Final = Table(
    "holdfast_idempotency_replies",
    metadata,
    _key("namespace"),
    _key("key"),
    _text("fingerprint"),
    _text("body"),
    _number("created_at"),
)

leaders: Final = Table("holdfast_leaders", metadata, _key("name"), _name("session"), _number("expires_at"))

gatherings: Final = Table(
    "holdfast_gatherings",
    metadata,
    _key("namespace"),
    _key("name"),
    _name("run"),
)
"""One row for each run that still gathers starts: its key is the name by which the next start finds it."""

slots: Final = Table("holdfast_concurrency_limits", metadata, _key("namespace"), _key("name"))
"""One row for each concurrency limit, locked whenever a slot is assigned. The holders are marked in their own rows."""

rates: Final = Table(
    "holdfast_rate_limits",
    metadata,
    _key("namespace"),
    _key("name"),
    _text("starts"),
    _number("wakes_at", nullable=True),
    _number("admits_at", nullable=True),
    _number("updated_at"),
)
_index(
    "holdfast_rate_limits_due",
    rates.c.admits_at,
    rates.c.namespace,
    rates.c.name,
    where="admits_at IS NOT NULL",
)
"""One row for each rate limit, with its recent claims. Locked when its jobs are claimed or queued."""

fair_keys: Final = Table(
    "holdfast_fair_keys",
    metadata,
    _key("namespace"),
    _key("line"),
    _key("key"),
    _number("next_turn"),
    _number("weight"),
    _number("updated_at"),
)
"""One row for each key among which the runs of a workflow share a queue. Locked by starts of that key only."""

_index("holdfast_fair_keys_highest", fair_keys.c.namespace, fair_keys.c.line, fair_keys.c.next_turn)

limits: Final = Table(
    "holdfast_limits",
    metadata,
    _key("namespace"),
    _key("name"),
    _number("slots", nullable=True),
    _number("rate_limit", nullable=True),
    _number("rate_period", nullable=True),
    _number("is_paused"),
    _text("reason"),
    _text("actor_kind"),
    _text("actor_id"),
    _text("actor_version"),
    _number("updated_at"),
)
"""One row for each limit that an operator has changed, and each queue that one has paused."""

credentials: Final = Table(
    "holdfast_credentials",
    metadata,
    _key("id"),
    _name("kind"),
    _text("label"),
    _name("unique_label", nullable=True),
    _text("principal"),
    _text("scopes"),
    _text("namespaces"),
    _text("hash"),
    _text("previous_hash", nullable=True),
    _number("previous_until", nullable=True),
    _number("created_at"),
    _number("expires_at", nullable=True),
    _number("used_at", nullable=True),
    _number("revoked_at", nullable=True),
    UniqueConstraint("unique_label", name="holdfast_credentials_label"),
)
"""One row for each credential. No secret is stored, only its SHA-256."""
_index("holdfast_credentials_in_order", credentials.c.created_at, credentials.c.id)

browser_sessions: Final = Table(
    "holdfast_browser_sessions",
    metadata,
    _key("id"),
    _text("hash"),
    _name("kind"),
    _name("principal"),
    _text("credential", nullable=True),
    _text("credential_hash", nullable=True),
    _text("scopes"),
    _text("namespaces"),
    _number("created_at"),
    _number("used_at"),
    _number("idle"),
    _number("expires_at"),
    _number("ends_at"),
)
"""One row for each browser that is signed in. No secret is stored, only its SHA-256."""
_index("holdfast_browser_sessions_of_principal", browser_sessions.c.principal, browser_sessions.c.kind)
_index("holdfast_browser_sessions_ended", browser_sessions.c.ends_at)

audit_entries: Final = Table(
    "holdfast_audit_entries",
    metadata,
    _key("namespace"),
    _number("at", key=True),
    _key("id"),
    _text("actor_kind"),
    _text("actor_id"),
    _text("actor_version"),
    _name("action"),
    _text("target"),
    _text("request_id", nullable=True),
    _text("details"),
)
"""One row for each administrative action that is in no run's history."""

namespaces: Final = Table(
    "holdfast_namespaces",
    metadata,
    _key("name"),
    _number("created_at"),
    _text("note"),
    _number("max_active_runs", nullable=True),
    _number("max_starts_per_minute", nullable=True),
)
"""One row for each namespace that was created; one that is only used has none."""

workflows: Final = Table(
    "holdfast_workflows",
    metadata,
    _key("namespace"),
    _key("name"),
    _key("version"),
    _name("plan"),
    _text("schemas"),
    _number("registered_at"),
)
"""One row for each version of a workflow that workers have registered in a namespace, with its schemas."""

notes: Final = Table(
    "holdfast_attempt_output",
    metadata,
    _key("run"),
    _key("id"),
    _number("job"),
    _number("epoch"),
    _name("call"),
    _number("at"),
    _name("kind"),
    _text("data"),
    _number("log_number", nullable=True),
)
"""`log_number` is the place of a log line in the order in which the lines of its run were stored."""
_index("holdfast_attempt_output_in_order", notes.c.run, notes.c.at, notes.c.id)
_index("holdfast_attempt_output_log", notes.c.run, notes.c.log_number, where="kind = 'log'", unique=True)
_index(
    "holdfast_attempt_output_progress",
    notes.c.run,
    notes.c.job,
    notes.c.at,
    notes.c.id,
    where="kind = 'progress'",
)

annotations: Final = Table(
    "holdfast_annotations",
    metadata,
    _key("run"),
    _number("at", key=True),
    _key("id"),
    _name("namespace"),
    _name("name"),
    _text("value"),
    _name("scope"),
    _name("node", nullable=True),
    _number("item", nullable=True),
    _number("job", nullable=True),
    _number("epoch", nullable=True),
    _name("actor_kind"),
    _name("actor_id"),
    _name("actor_version"),
    _text("reason"),
    _name("key", nullable=True),
)
# An annotation with an idempotency key is stored once.
_index(
    "holdfast_annotations_once",
    annotations.c.run,
    annotations.c.key,
    annotations.c.name,
    unique=True,
    where="key IS NOT NULL",
)

artifacts: Final = Table(
    "holdfast_artifacts",
    metadata,
    _key("run"),
    _number("job", key=True),
    _number("epoch", key=True),
    _key("call"),
    _key("name"),
    _name("node"),
    _number("item", nullable=True),
    _number("at"),
    _text("content_type"),
    _number("size"),
    _text("sha256"),
    _text("blob"),
)
_index("holdfast_artifacts_named", artifacts.c.run, artifacts.c.name, artifacts.c.job, artifacts.c.epoch)

ai_calls: Final = Table(
    "holdfast_ai_calls",
    metadata,
    _key("run"),
    _number("at", key=True),
    _key("id"),
    _number("job"),
    _number("epoch"),
    _name("node"),
    _number("item", nullable=True),
    _name("topic"),
    _name("model"),
    _name("kind"),
    _number("input_tokens"),
    _number("output_tokens"),
    _number("cost", nullable=True),
    _number("duration", nullable=True),
    _name("batch", nullable=True),
    _number("batch_index", nullable=True),
    _text("prompt", nullable=True),
    _text("prompt_blob", nullable=True),
    _text("response", nullable=True),
    _text("response_blob", nullable=True),
    _text("error", nullable=True),
    _text("metadata", nullable=True),
)
# By topic, so that a topic and those below it are one range.
_index("holdfast_ai_calls_of_topic", ai_calls.c.run, ai_calls.c.topic, ai_calls.c.at, ai_calls.c.id)
_index(
    "holdfast_ai_calls_of_batch",
    ai_calls.c.run,
    ai_calls.c.batch,
    ai_calls.c.batch_index,
    unique=True,
    where="batch IS NOT NULL",
)

sinks: Final = Table(
    "holdfast_sinks",
    metadata,
    _key("key"),
    _name("namespace"),
    _name("name"),
    _number("since"),
    _number("created_at"),
    _text("options", nullable=True),
    _number("failures"),
    _number("retry_at", nullable=True),
    _number("succeeded_at", nullable=True),
    _number("swept_at", nullable=True),
    _text("error", nullable=True),
    _text("batch", nullable=True),
    UniqueConstraint("namespace", "name", name="holdfast_sinks_name"),
)

schedules: Final = Table(
    "holdfast_schedules",
    metadata,
    _key("key"),
    _name("namespace"),
    _name("name"),
    _name("workflow"),
    _text("start"),
    _text("timing"),
    _text("policy"),
    _text("zones"),
    _number("next_at", nullable=True),
    _number("handled_until"),
    _text("last_local", nullable=True),
    _number("started"),
    _number("skipped"),
    _number("missed"),
    _number("failures"),
    _text("recent"),
    _text("changes"),
    _text("open_runs"),
    _text("paused", nullable=True),
    _text("problem", nullable=True),
    _text("declared", nullable=True),
    _number("created_at"),
    _number("updated_at"),
    UniqueConstraint("namespace", "name", name="holdfast_schedules_name"),
)
# Not partial: no NULL is ever due, and a database without partial indexes can have it too.
_index(
    "holdfast_schedules_next",
    schedules.c.namespace,
    schedules.c.workflow,
    schedules.c.next_at,
    schedules.c.key,
)

triggers: Final = Table(
    "holdfast_triggers",
    metadata,
    _key("namespace"),
    _key("name"),
    _name("topic"),
    _text("selection"),
    _name("workflow"),
    _text("start"),
    _number("since"),
    _number("next_number"),
    _number("started"),
    _number("refused"),
    _text("recent"),
    _text("changes"),
    _text("paused", nullable=True),
    _text("problem", nullable=True),
    _text("declared", nullable=True),
    _number("created_at"),
    _number("updated_at"),
)
# Nothing deletes a message that a trigger has not handled.
_index("holdfast_triggers_of_topic", triggers.c.namespace, triggers.c.topic, triggers.c.next_number)

topics: Final = Table(
    "holdfast_topics",
    metadata,
    _key("namespace"),
    _key("name"),
    _number("last"),
    _text("after_subscription", nullable=True),
    _number("kept_from"),
)
"""One row for each topic that had something to deliver, locked by each delivery: how far it got."""
_index("holdfast_topics_begun", topics.c.namespace, topics.c.name, where="after_subscription IS NOT NULL")

topic_messages: Final = Table(
    "holdfast_topic_messages",
    metadata,
    _key("namespace"),
    _key("topic"),
    _key("id"),
    _number("number", nullable=True),
    _number("at"),
    _text("payload"),
    _text("attributes"),
    _number("checked"),
    _name("sender", nullable=True),
    _number("sender_row"),
    _number("expires_at"),
    _number("keep_last", nullable=True),
)
_index(
    "holdfast_topic_messages_number",
    topic_messages.c.namespace,
    topic_messages.c.topic,
    topic_messages.c.number,
    where="number IS NOT NULL",
    unique=True,
)
_index(
    "holdfast_topic_messages_at",
    topic_messages.c.namespace,
    topic_messages.c.topic,
    topic_messages.c.at,
    topic_messages.c.number,
)
_index(
    "holdfast_topic_messages_new",
    topic_messages.c.namespace,
    topic_messages.c.topic,
    topic_messages.c.at,
    topic_messages.c.sender_row,
    topic_messages.c.id,
    where="number IS NULL",
)
_index(
    "holdfast_topic_messages_expiry",
    topic_messages.c.expires_at,
    topic_messages.c.namespace,
    topic_messages.c.topic,
)
# A delivery looks at those of its topic only.
_index(
    "holdfast_topic_messages_expiry_of_topic",
    topic_messages.c.namespace,
    topic_messages.c.topic,
    topic_messages.c.expires_at,
    topic_messages.c.id,
)

subscriptions: Final = Table(
    "holdfast_subscriptions",
    metadata,
    _key("namespace"),
    _key("run_id"),
    _key("channel"),
    _name("topic"),
    _text("selection"),
    _name("digest"),
    _number("next_number", nullable=True),
    _number("since"),
    _name("group_key", nullable=True),
    _number("waits_since", nullable=True),
    _number("holds", nullable=True),
)
_index(
    "holdfast_subscriptions_waiting",
    subscriptions.c.namespace,
    subscriptions.c.topic,
    subscriptions.c.group_key,
    subscriptions.c.waits_since,
    subscriptions.c.run_id,
    subscriptions.c.channel,
    where="group_key IS NOT NULL AND holds IS NULL",
)
# Nothing deletes a message that a member holds.
_index(
    "holdfast_subscriptions_holding",
    subscriptions.c.namespace,
    subscriptions.c.topic,
    subscriptions.c.holds,
    where="holds IS NOT NULL",
)
_index(
    "holdfast_subscriptions_of_topic",
    subscriptions.c.namespace,
    subscriptions.c.topic,
    subscriptions.c.digest,
    subscriptions.c.run_id,
    subscriptions.c.channel,
    where="next_number IS NULL",
)
_index(
    "holdfast_subscriptions_behind",
    subscriptions.c.namespace,
    subscriptions.c.topic,
    subscriptions.c.run_id,
    subscriptions.c.channel,
    where="next_number IS NOT NULL",
)

topic_groups: Final = Table(
    "holdfast_topic_groups",
    metadata,
    _key("namespace"),
    _key("topic"),
    _key("group_key"),
    _name("name"),
    _text("selection"),
    _number("next_number"),
    _number("since"),
    _number("used_at"),
)
# The group that is behind most keeps the messages of a topic.
_index(
    "holdfast_topic_groups_of_topic",
    topic_groups.c.namespace,
    topic_groups.c.topic,
    topic_groups.c.next_number,
)

returned_messages: Final = Table(
    "holdfast_returned_messages",
    metadata,
    _key("namespace"),
    _key("topic"),
    _key("group_key"),
    _number("number", key=True),
)
# Nothing deletes a message that went back, whichever its group is. The number comes first, so that no database reads
# the messages of a group by this index.
_index(
    "holdfast_returned_messages_number",
    returned_messages.c.namespace,
    returned_messages.c.number,
    returned_messages.c.topic,
)

outbox: Final = Table(
    "holdfast_outbox",
    metadata,
    _key("sink"),
    _key("run"),
    _number("head_row"),
    _number("delivered"),
    _name("state"),
    _number("due_at", nullable=True),
    _name("holder", nullable=True),
    _number("attempts"),
    _number("refused_row", nullable=True),
    _number("failed_at", nullable=True),
    _number("dead_lettered_at", nullable=True),
    _text("error", nullable=True),
    _text("skipped_rows", nullable=True),
)
"""One row for each run and sink: how far the run's events were delivered, and when to deliver next."""
_index(
    "holdfast_outbox_due",
    outbox.c.sink,
    outbox.c.due_at,
    outbox.c.run,
    where="due_at IS NOT NULL",
)
_index(
    "holdfast_outbox_dead_lettered",
    outbox.c.sink,
    outbox.c.run,
    where="state = 'dead_lettered'",
)
_index(
    "holdfast_attempt_output_heartbeats",
    notes.c.run,
    notes.c.job,
    notes.c.epoch,
    notes.c.id,
    where="kind = 'heartbeat'",
)

store: Final = Table("holdfast_store", metadata, _key("id"))
"""One row: the identity of the store, by which a connection of the application is known to lead to it."""

receipts: Final = Table("holdfast_commit_receipts", metadata, _key("id"), _number("at"))
"""One row for each writing transaction, to distinguish a lost answer from a lost commit.

Empty in a database whose answers can't be lost (`Database.has_receipts`).
"""
