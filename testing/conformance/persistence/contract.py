"""The complete contract of a store."""

from holdfast.testing.conformance.persistence.attempt_output import RunOutput
from holdfast.testing.conformance.persistence.audit import Inspecting
from holdfast.testing.conformance.persistence.cancels import CancelledWork
from holdfast.testing.conformance.persistence.changes import Changes
from holdfast.testing.conformance.persistence.children import Children
from holdfast.testing.conformance.persistence.claims import Claims
from holdfast.testing.conformance.persistence.concurrency import Concurrency
from holdfast.testing.conformance.persistence.conflicts import Conflicts
from holdfast.testing.conformance.persistence.credentials import Credentials
from holdfast.testing.conformance.persistence.jobs import JobReads
from holdfast.testing.conformance.persistence.keyed_reads import KeyedReads
from holdfast.testing.conformance.persistence.levels import Levels
from holdfast.testing.conformance.persistence.limits import Limits
from holdfast.testing.conformance.persistence.maintenance import Maintenance
from holdfast.testing.conformance.persistence.namespaces import Namespaces
from holdfast.testing.conformance.persistence.queries import Queries
from holdfast.testing.conformance.persistence.removals import Removals
from holdfast.testing.conformance.persistence.retention import Retention
from holdfast.testing.conformance.persistence.retries import Retries
from holdfast.testing.conformance.persistence.run_rates import RunRates
from holdfast.testing.conformance.persistence.run_search import RunSearch
from holdfast.testing.conformance.persistence.runs import RunReads
from holdfast.testing.conformance.persistence.schedules import Schedules
from holdfast.testing.conformance.persistence.sinks import Sinks
from holdfast.testing.conformance.persistence.slots import Slots
from holdfast.testing.conformance.persistence.suspensions import Suspensions
from holdfast.testing.conformance.persistence.topic_groups import TopicGroups
from holdfast.testing.conformance.persistence.topics import Topics
from holdfast.testing.conformance.persistence.triggers import Triggers
from holdfast.testing.conformance.persistence.turns import Turns
from holdfast.testing.conformance.persistence.unreadable import UnreadableRuns
from holdfast.testing.conformance.persistence.values import Values
from holdfast.testing.conformance.persistence.workers import Workers


class PersistenceContract(
    RunReads,
    JobReads,
    KeyedReads,
    Claims,
    Maintenance,
    Changes,
    Conflicts,
    Retries,
    Concurrency,
    Values,
    Queries,
    RunSearch,
    Schedules,
    Topics,
    TopicGroups,
    Triggers,
    Limits,
    Credentials,
    Workers,
    Namespaces,
    Sinks,
    RunOutput,
    RunRates,
    Slots,
    Levels,
    Turns,
    Suspensions,
    CancelledWork,
    Children,
    Removals,
    Retention,
    Inspecting,
    UnreadableRuns,
):
    """Every promise of `Persistence` and `Transaction`. Derive a test class and define `make_persistence`.

    Set `serial` if the store runs one transaction at a time (one lock, one writer), and `reads_wait` if queries wait
    for the open transaction. Define `open_again` if the same rows can be opened twice.
    """
