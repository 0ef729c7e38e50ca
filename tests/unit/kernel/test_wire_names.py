"""Wire names outlive releases: each is written out here, whatever the classes are called."""

from enum import StrEnum
from typing import cast, get_args

import pytest

from holdfast.adapters.sql.schema.tables import metadata
from holdfast.kernel.commands import Missed, Outcome, Overlap, StartKind
from holdfast.kernel.commands.codec import from_data, to_data
from holdfast.kernel.rules.registry import RULES
from holdfast.ports.attempt_output import AiCallKind, AnnotationScope
from holdfast.ports.changes import Change, Delete, Insert
from holdfast.ports.events import EVENT_TYPES
from holdfast.ports.records.credential import CredentialKind
from holdfast.ports.records.job import JobKey, JobKind, JobState, PassOver
from holdfast.ports.records.limits import SlotName
from holdfast.ports.records.outbox import StreamState
from holdfast.ports.records.run import ClosePolicy, RunStatus
from holdfast.ports.records.session import SessionState
from holdfast.ports.tables import JOBS, SINKS, TABLES
from holdfast.ports.transport import Hint, JobHint


def words(text: str) -> list[str]:
    return sorted(text.split())


def tags_of(union: object) -> list[str]:
    return sorted(kind.tag for kind in get_args(union))


def test_commands() -> None:
    assert sorted(kind.type for kind in RULES) == words("""
        browser_session.create browser_session.delete browser_session.touch
        credential.create credential.revoke credential.rotate credential.touch dead_letter.replay leader.acquire
        job.admit job.claim job.claim_one job.heartbeat job.reap_unresponsive
        job.record job.release job.settle job.wake_due lease.reap_stale limit.clear limit.set
        namespace.create namespace.delete outbox.flush outbox.read outbox.settle outbox.sweep
        run.annotate run.cancel run.claim_pending run.create run.deliver run.expire run.pause run.remove
        run.repair run.rerun_from run.resume run.signal run.terminate run.transition run.update schedule.backfill
        schedule.fire schedule.pause schedule.put schedule.remove schedule.replan schedule.resume schedule.trigger
        session.close session.open session.reap session.renew sink.register sink.remove stage.poll_suspended
        stage.wake topic.deliver topic.publish topic.remove trigger.fire trigger.pause trigger.put trigger.remove
        trigger.resume update.deliver workflow.register
    """)


def test_outcomes() -> None:
    assert tags_of(Outcome) == words("""
        blocked cancelled child_started completed completed_after_step condition_evaluated continued_as_new failed
        map_expanded not_ready step_completed step_failed suspended waiting
    """)


def test_changes() -> None:
    assert tags_of(Change) == words("""
        advance_streams block_run cancel_external_work delete delete_jobs delete_jobs_of_node delete_run insert update
    """)


def test_tables_of_changes() -> None:
    assert sorted(table.name for table in TABLES) == words("""
        ai_calls annotations artifacts attempt_output audit_entries browser_sessions credentials fair_keys
        gatherings history jobs leaders limits map_items namespaces plans rates registrations replies
        returned_messages runs schedules sessions sinks slots streams subscriptions topic_groups topic_messages topics
        triggers workflows
    """)


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (Insert(SlotName("n", "s")), {"change": "insert", "table": "slots", "record": ("n", "s")}),
        (Delete(JOBS, JobKey("r", 1)), {"change": "delete", "table": "jobs", "key": ("r", 1)}),
        (Delete(SINKS, "k"), {"change": "delete", "table": "sinks", "key": "k"}),
    ],
)
def test_a_change_names_its_table(change: Change, data: object) -> None:
    assert to_data(change, Change) == data
    assert from_data(to_data(change, Change), cast("type[object]", Change)) == change


def test_hints() -> None:
    assert tags_of(Hint) == words("history_grew job run_ended")


def test_a_tag_is_told_from_the_name_of_its_class() -> None:
    assert to_data(JobHint(job="r.1", epoch=1, queue="q"), Hint)["hint"] == "job"


def test_rows_of_histories() -> None:
    assert sorted(EVENT_TYPES) == words("""
        channel.closed cancel.sent child.completed child.failed signal.sent child.started clock.read
        event.skipped function.began message.published patch.marked result.refused run.admitted run.blocked
        run.cancelled
        run.cancelling run.completed run.continued run.created run.failed run.gathered run.history_long run.paused
        run.repaired run.resumed run.terminated signal.received signal.refused stage.cancel_failed
        stage.cancelled stage.completed stage.expanded stage.failed stage.lost stage.retrying stage.skipped
        stage.started stage.suspended stage.tested start.received step.cancelled step.completed step.failed
        step.queued step.retrying step.started timer.fired topic.subscribed topic.unsubscribed
        update.completed update.failed update.received
        update.rejected update.replied update.sent value.published
    """)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ClosePolicy, "abandon cancel terminate"),
        (CredentialKind, "key"),
        (JobKind, "cancel child condition deliver expand_map poll stage step workflow"),
        (JobState, "leased limited paused pending_delivery queued sleeping"),
        (Missed, "all last none"),
        (Overlap, "allow cancel queue queue_one skip terminate"),
        (PassOver, "lost nothing suspects"),
        (RunStatus, "blocked cancelled cancelling completed failed paused pending running"),
        (SessionState, "dead open"),
        (StartKind, "backfill due made_up manual"),
        (StreamState, "dead_lettered ready"),
        (AiCallKind, "batch embed object stream text"),
        (AnnotationScope, "attempt item run stage"),
    ],
)
def test_values_of_columns(kind: type[StrEnum], values: str) -> None:
    assert sorted(one.value for one in kind) == words(values)


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (
            "holdfast_ai_calls",
            """
            at batch batch_index cost duration epoch error id input_tokens item job kind metadata model node
            output_tokens prompt prompt_blob response response_blob run topic
        """,
        ),
        (
            "holdfast_annotations",
            """
            actor_id actor_kind actor_version at epoch id item job key name namespace node reason run scope
            value
        """,
        ),
        ("holdfast_artifacts", "at blob call content_type epoch item job name node run sha256 size"),
        ("holdfast_attempt_output", "at call data epoch id job kind log_number run"),
        ("holdfast_attributes", "created_at pair run"),
        (
            "holdfast_audit_entries",
            "action actor_id actor_kind actor_version at details id namespace request_id target",
        ),
        (
            "holdfast_browser_sessions",
            """
            created_at credential credential_hash ends_at expires_at hash id idle kind namespaces principal scopes
            used_at
        """,
        ),
        (
            "holdfast_credentials",
            """
            created_at expires_at hash id kind label namespaces previous_hash previous_until principal revoked_at scopes
            unique_label used_at
        """,
        ),
        ("holdfast_commit_receipts", "at id"),
        ("holdfast_store", "id"),
        ("holdfast_concurrency_limits", "name namespace"),
        ("holdfast_fair_keys", "key line namespace next_turn updated_at weight"),
        ("holdfast_gatherings", "name namespace run"),
        ("holdfast_history", "at blob data epoch item node number payload run type"),
        ("holdfast_idempotency_replies", "body created_at fingerprint key namespace"),
        (
            "holdfast_jobs",
            """
            attempts check_after concurrency_key concurrency_limit definition epoch first_claimed_at give_up_at
            heartbeat_by heartbeat_timeout input item kind leased_at lost_attempts max_attempts namespace
            node number priority queue queue_position rate_limit rate_period run session state timeout_total
            turn waiting_for wake_at
        """,
        ),
        ("holdfast_leaders", "expires_at name session"),
        ("holdfast_map_items", "items node page run"),
        (
            "holdfast_outbox",
            """
            attempts dead_lettered_at delivered due_at error failed_at head_row holder refused_row run sink
            skipped_rows state
        """,
        ),
        ("holdfast_namespaces", "created_at max_active_runs max_starts_per_minute name note"),
        ("holdfast_workflows", "name namespace plan registered_at schemas version"),
        ("holdfast_plans", "body fingerprint version workflow"),
        ("holdfast_rate_limits", "admits_at name namespace starts updated_at wakes_at"),
        (
            "holdfast_runs",
            """
            attributes children close_policy concurrency_full concurrency_key concurrency_limit
            concurrency_outer concurrency_waiting created_at deadline ended_at error gathered generation
            headers id in_rate_line inherited key last_job last_row mailbox namespace open_jobs parent parent_run plan
            priority progress queue queue_position rate_counted_at rate_key rate_limit rate_period rate_units
            reported_row rerun_from rerun_of result scheduled start_at status updated_at version workflow
            """,
        ),
        (
            "holdfast_schedules",
            """
            changes created_at declared failures handled_until key last_local missed name namespace next_at open_runs
            paused policy problem recent skipped start started timing updated_at workflow zones
        """,
        ),
        ("holdfast_sessions", "expires_at host id is_registered namespace opened_at principal state"),
        ("holdfast_worker_registry", "about lease namespace session"),
        (
            "holdfast_subscriptions",
            "channel digest group_key holds namespace next_number run_id selection since topic waits_since",
        ),
        (
            "holdfast_topic_messages",
            "at attributes checked expires_at id keep_last namespace number payload sender sender_row topic",
        ),
        ("holdfast_topics", "after_subscription kept_from last name namespace"),
        ("holdfast_topic_groups", "group_key name namespace next_number selection since topic used_at"),
        ("holdfast_returned_messages", "group_key namespace number topic"),
        (
            "holdfast_triggers",
            """
            changes created_at declared name namespace next_number paused problem recent refused selection since start
            started topic updated_at workflow
        """,
        ),
        (
            "holdfast_sinks",
            """
            batch created_at error failures key name namespace options retry_at since succeeded_at swept_at
        """,
        ),
    ],
)
def test_columns(table: str, columns: str) -> None:
    assert sorted(column.name for column in metadata.tables[table].columns) == words(columns)


def test_tables() -> None:
    assert sorted(metadata.tables) == words("""
        holdfast_ai_calls holdfast_annotations holdfast_artifacts holdfast_attempt_output holdfast_attributes
        holdfast_audit_entries holdfast_browser_sessions holdfast_commit_receipts holdfast_concurrency_limits
        holdfast_credentials
        holdfast_fair_keys holdfast_gatherings holdfast_history holdfast_idempotency_replies holdfast_jobs
        holdfast_leaders holdfast_limits holdfast_map_items holdfast_namespaces holdfast_outbox holdfast_plans
        holdfast_rate_limits holdfast_returned_messages holdfast_runs holdfast_schedules holdfast_sessions
        holdfast_sinks holdfast_store holdfast_subscriptions holdfast_topic_groups holdfast_topic_messages
        holdfast_topics holdfast_triggers holdfast_worker_registry holdfast_workflows
    """)
