"""Create the tables of 0.1.0, with their indexes."""

import uuid
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from holdfast.adapters.sql.schema.ddl import BytewiseText, partial

revision = "2026_11_26"
down_revision = None
branch_labels = None
depends_on = None


def key(column: str, *, nullable: bool = False) -> sa.Column[str]:
    """Return a column for text that is compared, bytewise."""
    return sa.Column(column, BytewiseText(), nullable=nullable)


def words(column: str, *, nullable: bool = False) -> sa.Column[str]:
    """Return a column for text that is only stored."""
    return sa.Column(column, sa.Text(), nullable=nullable)


def number(column: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger(), nullable=nullable, autoincrement=False)


def index(
    name: str, on: str, columns: Sequence[str], where: str | None = None, *, unique: bool = False
) -> None:
    op.create_index(name, on, columns, unique=unique, **partial(where, op.get_context().dialect))


def upgrade() -> None:
    create_runs()
    create_attributes()
    create_jobs()
    create_history()
    create_map_items()
    create_plans()
    create_sessions()
    create_worker_registry()
    create_idempotency_replies()
    create_leaders()
    create_gatherings()
    create_concurrency_limits()
    create_rate_limits()
    create_fair_keys()
    create_limits()
    create_credentials()
    create_browser_sessions()
    create_audit_entries()
    create_namespaces()
    create_workflows()
    create_attempt_output()
    create_annotations()
    create_artifacts()
    create_ai_calls()
    create_sinks()
    create_schedules()
    create_triggers()
    create_topics()
    create_topic_messages()
    create_subscriptions()
    create_topic_groups()
    create_outbox()
    create_commit_receipts()
    create_store()


def create_runs() -> None:
    op.create_table(
        "holdfast_runs",
        key("key"),
        key("namespace"),
        key("id"),
        number("generation"),
        key("workflow"),
        key("version"),
        key("plan"),
        key("status"),
        key("queue"),
        number("priority"),
        number("created_at"),
        number("updated_at"),
        number("ended_at", nullable=True),
        number("last_row"),
        number("last_job"),
        number("open_jobs"),
        words("progress"),
        words("result", nullable=True),
        words("error", nullable=True),
        words("attributes", nullable=True),
        key("rerun_of", nullable=True),
        key("rerun_from", nullable=True),
        words("inherited", nullable=True),
        number("start_at", nullable=True),
        number("deadline", nullable=True),
        key("concurrency_key", nullable=True),
        number("concurrency_limit", nullable=True),
        number("concurrency_waiting", nullable=True),
        words("concurrency_full", nullable=True),
        words("concurrency_outer", nullable=True),
        key("parent", nullable=True),
        key("parent_run", nullable=True),
        key("close_policy"),
        number("children"),
        number("queue_position"),
        words("mailbox", nullable=True),
        words("scheduled", nullable=True),
        number("reported_row"),
        words("gathered", nullable=True),
        key("rate_key", nullable=True),
        number("rate_limit", nullable=True),
        number("rate_period", nullable=True),
        number("rate_units", nullable=True),
        number("rate_counted_at", nullable=True),
        number("in_rate_line"),
        words("headers", nullable=True),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("namespace", "id", "generation", name="holdfast_runs_name"),
    )
    index(
        "holdfast_runs_active", "holdfast_runs", ["key"], "status NOT IN ('completed', 'failed', 'cancelled')"
    )
    index("holdfast_runs_by_status", "holdfast_runs", ["namespace", "status", "created_at", "key"])
    index(
        "holdfast_runs_by_workflow", "holdfast_runs", ["namespace", "workflow", "status", "created_at", "key"]
    )
    index(
        "holdfast_runs_children",
        "holdfast_runs",
        ["parent"],
        "parent IS NOT NULL AND status NOT IN ('completed', 'failed', 'cancelled')",
    )
    index(
        "holdfast_runs_of_parent",
        "holdfast_runs",
        ["namespace", "parent_run", "created_at", "key"],
        "parent_run IS NOT NULL",
    )
    index(
        "holdfast_runs_deadline",
        "holdfast_runs",
        ["deadline"],
        "status NOT IN ('completed', 'failed', 'cancelled') AND deadline IS NOT NULL",
    )
    index("holdfast_runs_listed", "holdfast_runs", ["namespace", "created_at", "key"])
    index(
        "holdfast_runs_of_key",
        "holdfast_runs",
        ["namespace", "concurrency_key", "created_at", "key"],
        "status NOT IN ('completed', 'failed', 'cancelled') AND concurrency_key IS NOT NULL",
    )
    index(
        "holdfast_runs_rated",
        "holdfast_runs",
        ["namespace", "rate_key", "queue_position", "key"],
        "status = 'pending' AND start_at IS NULL AND in_rate_line = 1",
    )
    index("holdfast_runs_rerun", "holdfast_runs", ["namespace", "id", "generation"], "generation > 1")
    index(
        "holdfast_runs_slots",
        "holdfast_runs",
        ["namespace", "concurrency_key"],
        "status NOT IN ('completed', 'failed', 'cancelled', 'pending') AND concurrency_key IS NOT NULL",
    )
    index("holdfast_runs_start", "holdfast_runs", ["start_at"], "status = 'pending' AND start_at IS NOT NULL")
    index(
        "holdfast_runs_start_of_namespace",
        "holdfast_runs",
        ["namespace", "start_at"],
        "status = 'pending' AND start_at IS NOT NULL",
    )
    index(
        "holdfast_runs_waiting",
        "holdfast_runs",
        ["namespace", "concurrency_key", "queue_position", "key"],
        "status = 'pending' AND start_at IS NULL AND concurrency_key IS NOT NULL AND in_rate_line = 0",
    )


def create_attributes() -> None:
    op.create_table(
        "holdfast_attributes",
        key("pair"),
        number("created_at"),
        key("run"),
        sa.PrimaryKeyConstraint("pair", "created_at", "run"),
    )
    index("holdfast_attributes_of_run", "holdfast_attributes", ["run"])


def create_jobs() -> None:
    op.create_table(
        "holdfast_jobs",
        key("run"),
        number("number"),
        key("namespace"),
        key("queue"),
        key("definition"),
        key("kind"),
        key("node"),
        number("item", nullable=True),
        key("state"),
        number("priority"),
        number("wake_at", nullable=True),
        number("epoch"),
        number("attempts"),
        number("max_attempts"),
        key("session", nullable=True),
        number("leased_at", nullable=True),
        number("lost_attempts"),
        words("input"),
        number("timeout_total", nullable=True),
        number("first_claimed_at", nullable=True),
        number("heartbeat_timeout", nullable=True),
        number("heartbeat_by", nullable=True),
        key("concurrency_key", nullable=True),
        number("concurrency_limit", nullable=True),
        key("waiting_for", nullable=True),
        number("check_after", nullable=True),
        number("give_up_at", nullable=True),
        number("queue_position"),
        number("rate_limit", nullable=True),
        number("rate_period", nullable=True),
        number("turn", nullable=True),
        sa.PrimaryKeyConstraint("run", "number"),
    )
    index(
        "holdfast_jobs_claim",
        "holdfast_jobs",
        ["namespace", "queue", "definition", "queue_position", "run", "number"],
        "state = 'queued'",
    )
    index("holdfast_jobs_external", "holdfast_jobs", ["namespace", "waiting_for"], "kind = 'poll'")
    index("holdfast_jobs_heartbeat", "holdfast_jobs", ["heartbeat_by"], "heartbeat_by IS NOT NULL")
    index("holdfast_jobs_leased", "holdfast_jobs", ["session"], "state = 'leased'")
    index(
        "holdfast_jobs_limited",
        "holdfast_jobs",
        ["namespace", "concurrency_key", "queue_position", "run", "number"],
        "state = 'limited'",
    )
    index(
        "holdfast_jobs_sleeping_of_queue",
        "holdfast_jobs",
        ["namespace", "queue", "definition"],
        "state = 'sleeping'",
    )
    index("holdfast_jobs_pending_delivery", "holdfast_jobs", ["run", "number"], "state = 'pending_delivery'")
    index(
        "holdfast_jobs_rate_limited",
        "holdfast_jobs",
        ["namespace", "concurrency_key"],
        "state = 'queued' AND rate_limit IS NOT NULL",
    )
    index("holdfast_jobs_sleeping", "holdfast_jobs", ["wake_at"], "state = 'sleeping'")
    index(
        "holdfast_jobs_slots",
        "holdfast_jobs",
        ["namespace", "concurrency_key"],
        "state IN ('queued', 'leased') AND concurrency_key IS NOT NULL",
    )
    index(
        "holdfast_jobs_turns",
        "holdfast_jobs",
        ["namespace", "queue", "definition", "turn", "run"],
        "turn IS NOT NULL AND epoch = 0 AND state IN ('queued', 'limited')",
    )


def create_history() -> None:
    op.create_table(
        "holdfast_history",
        key("run"),
        number("number"),
        key("type"),
        number("at"),
        key("node", nullable=True),
        number("item", nullable=True),
        number("epoch", nullable=True),
        words("payload", nullable=True),
        words("blob", nullable=True),
        words("data", nullable=True),
        sa.PrimaryKeyConstraint("run", "number"),
    )


def create_map_items() -> None:
    op.create_table(
        "holdfast_map_items",
        key("run"),
        key("node"),
        number("page"),
        words("items"),
        sa.PrimaryKeyConstraint("run", "node", "page"),
    )


def create_plans() -> None:
    op.create_table(
        "holdfast_plans",
        key("fingerprint"),
        key("workflow"),
        key("version"),
        words("body"),
        sa.PrimaryKeyConstraint("fingerprint"),
    )


def create_sessions() -> None:
    op.create_table(
        "holdfast_sessions",
        key("id"),
        words("host"),
        key("state"),
        number("opened_at"),
        number("expires_at"),
        key("namespace"),
        key("principal", nullable=True),
        number("is_registered"),
        sa.PrimaryKeyConstraint("id"),
    )
    index("holdfast_sessions_open", "holdfast_sessions", ["id"], "state = 'open'")


def create_worker_registry() -> None:
    op.create_table(
        "holdfast_worker_registry",
        key("session"),
        key("namespace"),
        words("about"),
        number("lease"),
        sa.PrimaryKeyConstraint("session"),
    )
    index("holdfast_worker_registry_listed", "holdfast_worker_registry", ["namespace", "session"])


def create_idempotency_replies() -> None:
    op.create_table(
        "holdfast_idempotency_replies",
        key("namespace"),
        key("key"),
        words("fingerprint"),
        words("body"),
        number("created_at"),
        sa.PrimaryKeyConstraint("namespace", "key"),
    )


def create_leaders() -> None:
    op.create_table(
        "holdfast_leaders",
        key("name"),
        key("session"),
        number("expires_at"),
        sa.PrimaryKeyConstraint("name"),
    )


def create_gatherings() -> None:
    op.create_table(
        "holdfast_gatherings",
        key("namespace"),
        key("name"),
        key("run"),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )


def create_concurrency_limits() -> None:
    op.create_table(
        "holdfast_concurrency_limits",
        key("namespace"),
        key("name"),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )


def create_rate_limits() -> None:
    op.create_table(
        "holdfast_rate_limits",
        key("namespace"),
        key("name"),
        words("starts"),
        number("wakes_at", nullable=True),
        number("admits_at", nullable=True),
        number("updated_at"),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )
    index(
        "holdfast_rate_limits_due",
        "holdfast_rate_limits",
        ["admits_at", "namespace", "name"],
        "admits_at IS NOT NULL",
    )


def create_fair_keys() -> None:
    op.create_table(
        "holdfast_fair_keys",
        key("namespace"),
        key("line"),
        key("key"),
        number("next_turn"),
        number("weight"),
        number("updated_at"),
        sa.PrimaryKeyConstraint("namespace", "line", "key"),
    )
    index("holdfast_fair_keys_highest", "holdfast_fair_keys", ["namespace", "line", "next_turn"])


def create_limits() -> None:
    op.create_table(
        "holdfast_limits",
        key("namespace"),
        key("name"),
        number("slots", nullable=True),
        number("rate_limit", nullable=True),
        number("rate_period", nullable=True),
        number("is_paused"),
        words("reason"),
        words("actor_kind"),
        words("actor_id"),
        words("actor_version"),
        number("updated_at"),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )


def create_credentials() -> None:
    op.create_table(
        "holdfast_credentials",
        key("id"),
        key("kind"),
        words("label"),
        key("unique_label", nullable=True),
        words("principal"),
        words("scopes"),
        words("namespaces"),
        words("hash"),
        words("previous_hash", nullable=True),
        number("previous_until", nullable=True),
        number("created_at"),
        number("expires_at", nullable=True),
        number("used_at", nullable=True),
        number("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("unique_label", name="holdfast_credentials_label"),
    )
    index("holdfast_credentials_in_order", "holdfast_credentials", ["created_at", "id"])


def create_browser_sessions() -> None:
    op.create_table(
        "holdfast_browser_sessions",
        key("id"),
        words("hash"),
        key("kind"),
        key("principal"),
        words("credential", nullable=True),
        words("credential_hash", nullable=True),
        words("scopes"),
        words("namespaces"),
        number("created_at"),
        number("used_at"),
        number("idle"),
        number("expires_at"),
        number("ends_at"),
        sa.PrimaryKeyConstraint("id"),
    )
    index("holdfast_browser_sessions_of_principal", "holdfast_browser_sessions", ["principal", "kind"])
    index("holdfast_browser_sessions_ended", "holdfast_browser_sessions", ["ends_at"])


def create_audit_entries() -> None:
    op.create_table(
        "holdfast_audit_entries",
        key("namespace"),
        number("at"),
        key("id"),
        words("actor_kind"),
        words("actor_id"),
        words("actor_version"),
        key("action"),
        words("target"),
        words("request_id", nullable=True),
        words("details"),
        sa.PrimaryKeyConstraint("namespace", "at", "id"),
    )


def create_namespaces() -> None:
    op.create_table(
        "holdfast_namespaces",
        key("name"),
        number("created_at"),
        words("note"),
        number("max_active_runs", nullable=True),
        number("max_starts_per_minute", nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )


def create_workflows() -> None:
    op.create_table(
        "holdfast_workflows",
        key("namespace"),
        key("name"),
        key("version"),
        key("plan"),
        words("schemas"),
        number("registered_at"),
        sa.PrimaryKeyConstraint("namespace", "name", "version"),
    )


def create_attempt_output() -> None:
    op.create_table(
        "holdfast_attempt_output",
        key("run"),
        key("id"),
        number("job"),
        number("epoch"),
        key("call"),
        number("at"),
        key("kind"),
        words("data"),
        number("log_number", nullable=True),
        sa.PrimaryKeyConstraint("run", "id"),
    )
    index(
        "holdfast_attempt_output_heartbeats",
        "holdfast_attempt_output",
        ["run", "job", "epoch", "id"],
        "kind = 'heartbeat'",
    )
    index("holdfast_attempt_output_in_order", "holdfast_attempt_output", ["run", "at", "id"])
    index(
        "holdfast_attempt_output_log",
        "holdfast_attempt_output",
        ["run", "log_number"],
        "kind = 'log'",
        unique=True,
    )
    index(
        "holdfast_attempt_output_progress",
        "holdfast_attempt_output",
        ["run", "job", "at", "id"],
        "kind = 'progress'",
    )


def create_annotations() -> None:
    op.create_table(
        "holdfast_annotations",
        key("run"),
        number("at"),
        key("id"),
        key("namespace"),
        key("name"),
        words("value"),
        key("scope"),
        key("node", nullable=True),
        number("item", nullable=True),
        number("job", nullable=True),
        number("epoch", nullable=True),
        key("actor_kind"),
        key("actor_id"),
        key("actor_version"),
        words("reason"),
        key("key", nullable=True),
        sa.PrimaryKeyConstraint("run", "at", "id"),
    )
    index(
        "holdfast_annotations_once",
        "holdfast_annotations",
        ["run", "key", "name"],
        "key IS NOT NULL",
        unique=True,
    )


def create_artifacts() -> None:
    op.create_table(
        "holdfast_artifacts",
        key("run"),
        number("job"),
        number("epoch"),
        key("call"),
        key("name"),
        key("node"),
        number("item", nullable=True),
        number("at"),
        words("content_type"),
        number("size"),
        words("sha256"),
        words("blob"),
        sa.PrimaryKeyConstraint("run", "job", "epoch", "call", "name"),
    )
    index("holdfast_artifacts_named", "holdfast_artifacts", ["run", "name", "job", "epoch"])


def create_ai_calls() -> None:
    op.create_table(
        "holdfast_ai_calls",
        key("run"),
        number("at"),
        key("id"),
        number("job"),
        number("epoch"),
        key("node"),
        number("item", nullable=True),
        key("topic"),
        key("model"),
        key("kind"),
        number("input_tokens"),
        number("output_tokens"),
        number("cost", nullable=True),
        number("duration", nullable=True),
        key("batch", nullable=True),
        number("batch_index", nullable=True),
        words("prompt", nullable=True),
        words("prompt_blob", nullable=True),
        words("response", nullable=True),
        words("response_blob", nullable=True),
        words("error", nullable=True),
        words("metadata", nullable=True),
        sa.PrimaryKeyConstraint("run", "at", "id"),
    )
    index(
        "holdfast_ai_calls_of_batch",
        "holdfast_ai_calls",
        ["run", "batch", "batch_index"],
        "batch IS NOT NULL",
        unique=True,
    )
    index("holdfast_ai_calls_of_topic", "holdfast_ai_calls", ["run", "topic", "at", "id"])


def create_sinks() -> None:
    op.create_table(
        "holdfast_sinks",
        key("key"),
        key("namespace"),
        key("name"),
        number("since"),
        number("created_at"),
        words("options", nullable=True),
        number("failures"),
        number("retry_at", nullable=True),
        number("succeeded_at", nullable=True),
        number("swept_at", nullable=True),
        words("error", nullable=True),
        words("batch", nullable=True),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("namespace", "name", name="holdfast_sinks_name"),
    )


def create_schedules() -> None:
    op.create_table(
        "holdfast_schedules",
        key("key"),
        key("namespace"),
        key("name"),
        key("workflow"),
        words("start"),
        words("timing"),
        words("policy"),
        words("zones"),
        number("next_at", nullable=True),
        number("handled_until"),
        words("last_local", nullable=True),
        number("started"),
        number("skipped"),
        number("missed"),
        number("failures"),
        words("recent"),
        words("changes"),
        words("open_runs"),
        words("paused", nullable=True),
        words("problem", nullable=True),
        words("declared", nullable=True),
        number("created_at"),
        number("updated_at"),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("namespace", "name", name="holdfast_schedules_name"),
    )
    index("holdfast_schedules_next", "holdfast_schedules", ["namespace", "workflow", "next_at", "key"])


def create_triggers() -> None:
    op.create_table(
        "holdfast_triggers",
        key("namespace"),
        key("name"),
        key("topic"),
        words("selection"),
        key("workflow"),
        words("start"),
        number("since"),
        number("next_number"),
        number("started"),
        number("refused"),
        words("recent"),
        words("changes"),
        words("paused", nullable=True),
        words("problem", nullable=True),
        words("declared", nullable=True),
        number("created_at"),
        number("updated_at"),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )
    index("holdfast_triggers_of_topic", "holdfast_triggers", ["namespace", "topic", "next_number"])


def create_topics() -> None:
    op.create_table(
        "holdfast_topics",
        key("namespace"),
        key("name"),
        number("last"),
        words("after_subscription", nullable=True),
        number("kept_from"),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )
    index("holdfast_topics_begun", "holdfast_topics", ["namespace", "name"], "after_subscription IS NOT NULL")


def create_topic_messages() -> None:
    op.create_table(
        "holdfast_topic_messages",
        key("namespace"),
        key("topic"),
        key("id"),
        number("number", nullable=True),
        number("at"),
        words("payload"),
        words("attributes"),
        number("checked"),
        key("sender", nullable=True),
        number("sender_row"),
        number("expires_at"),
        number("keep_last", nullable=True),
        sa.PrimaryKeyConstraint("namespace", "topic", "id"),
    )
    of_topic = ["namespace", "topic"]
    index(
        "holdfast_topic_messages_number",
        "holdfast_topic_messages",
        [*of_topic, "number"],
        "number IS NOT NULL",
        unique=True,
    )
    index(
        "holdfast_topic_messages_new",
        "holdfast_topic_messages",
        [*of_topic, "at", "sender_row", "id"],
        "number IS NULL",
    )
    index("holdfast_topic_messages_at", "holdfast_topic_messages", [*of_topic, "at", "number"])
    index("holdfast_topic_messages_expiry", "holdfast_topic_messages", ["expires_at", "namespace", "topic"])
    index(
        "holdfast_topic_messages_expiry_of_topic",
        "holdfast_topic_messages",
        [*of_topic, "expires_at", "id"],
    )


def create_subscriptions() -> None:
    op.create_table(
        "holdfast_subscriptions",
        key("namespace"),
        key("run_id"),
        key("channel"),
        key("topic"),
        words("selection"),
        key("digest"),
        number("next_number", nullable=True),
        number("since"),
        key("group_key", nullable=True),
        number("waits_since", nullable=True),
        number("holds", nullable=True),
        sa.PrimaryKeyConstraint("namespace", "run_id", "channel"),
    )
    index(
        "holdfast_subscriptions_waiting",
        "holdfast_subscriptions",
        ["namespace", "topic", "group_key", "waits_since", "run_id", "channel"],
        "group_key IS NOT NULL AND holds IS NULL",
    )
    index(
        "holdfast_subscriptions_holding",
        "holdfast_subscriptions",
        ["namespace", "topic", "holds"],
        "holds IS NOT NULL",
    )
    index(
        "holdfast_subscriptions_of_topic",
        "holdfast_subscriptions",
        ["namespace", "topic", "digest", "run_id", "channel"],
        "next_number IS NULL",
    )
    index(
        "holdfast_subscriptions_behind",
        "holdfast_subscriptions",
        ["namespace", "topic", "run_id", "channel"],
        "next_number IS NOT NULL",
    )


def create_topic_groups() -> None:
    op.create_table(
        "holdfast_topic_groups",
        key("namespace"),
        key("topic"),
        key("group_key"),
        key("name"),
        words("selection"),
        number("next_number"),
        number("since"),
        number("used_at"),
        sa.PrimaryKeyConstraint("namespace", "topic", "group_key"),
    )
    of_topic = ["namespace", "topic"]
    index("holdfast_topic_groups_of_topic", "holdfast_topic_groups", [*of_topic, "next_number"])
    op.create_table(
        "holdfast_returned_messages",
        key("namespace"),
        key("topic"),
        key("group_key"),
        number("number"),
        sa.PrimaryKeyConstraint("namespace", "topic", "group_key", "number"),
    )
    index("holdfast_returned_messages_number", "holdfast_returned_messages", ["namespace", "number", "topic"])


def create_outbox() -> None:
    op.create_table(
        "holdfast_outbox",
        key("sink"),
        key("run"),
        number("head_row"),
        number("delivered"),
        key("state"),
        number("due_at", nullable=True),
        key("holder", nullable=True),
        number("attempts"),
        number("refused_row", nullable=True),
        number("failed_at", nullable=True),
        number("dead_lettered_at", nullable=True),
        words("error", nullable=True),
        words("skipped_rows", nullable=True),
        sa.PrimaryKeyConstraint("sink", "run"),
    )
    index("holdfast_outbox_dead_lettered", "holdfast_outbox", ["sink", "run"], "state = 'dead_lettered'")
    index("holdfast_outbox_due", "holdfast_outbox", ["sink", "due_at", "run"], "due_at IS NOT NULL")


def create_commit_receipts() -> None:
    op.create_table(
        "holdfast_commit_receipts",
        key("id"),
        number("at"),
        sa.PrimaryKeyConstraint("id"),
    )


def create_store() -> None:
    store = op.create_table("holdfast_store", key("id"), sa.PrimaryKeyConstraint("id"))
    op.bulk_insert(store, [{"id": uuid.uuid4().hex}])
