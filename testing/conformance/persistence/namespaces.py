"""The contract of a store for namespaces: their rows, their list, and what they have."""

from attrs import evolve

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.namespaces import (
    CountNamespace,
    ListNamespaces,
    NamespaceCounts,
    NamespaceEntry,
)
from holdfast.ports.queries.workflows import ListWorkflows, StoredWorkflow
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.session import Registration
from holdfast.ports.records.topic import TopicName
from holdfast.ports.records.values import PlanRow
from holdfast.ports.records.workflow import WorkflowRow
from holdfast.ports.searches import NamespaceParts, NamespaceRuns, WorkflowsOfNamespace
from holdfast.ports.tables import NAMESPACES, TOPICS, WORKFLOWS
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_run, a_schedule, a_session, a_sink
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query
from holdfast.testing.conformance.persistence.topics import GROUP_OF_E, MESSAGE, SUBSCRIPTION, TOPIC

FULL = NamespaceRow(name="team-a", created_at=NOW, note="ünser", max_active_runs=10, max_starts_per_minute=0)


def _names(found: tuple[NamespaceEntry, ...]) -> list[str]:
    return [one.name for one in found]


class Namespaces(PersistenceCase):
    """Rows of namespaces and of their workflows, and the queries and searches for these."""

    def test_a_namespace_is_stored_changed_and_deleted(self, store: Persistence) -> None:
        """With and without note and quotas."""
        plain = NamespaceRow(name="b", created_at=NOW)
        put(store, Insert(FULL), Insert(plain))
        assert query(store, lambda tx: tx.lock(NAMESPACES, ["b", "team-a"])) == [plain, FULL]
        changed = evolve(FULL, note="", max_active_runs=None)
        put(store, Update(changed), Delete(NAMESPACES, "b"))
        assert query(store, lambda tx: tx.get(NAMESPACES, ["b", "team-a"])) == [changed]

    def test_namespaces_are_listed_whether_they_were_created_or_are_only_used(
        self, store: Persistence
    ) -> None:
        """By name, in pages, each once."""
        put(
            store,
            Insert(FULL),
            Insert(a_run(1, namespace="c")),
            Insert(a_run(2, namespace="team-a")),
            Insert(a_run(3, namespace="c")),
            Insert(a_schedule(namespace="a")),
            Insert(Registration(session=a_session(1).id, namespace="z", about="{}", lease=1)),
            Insert(a_sink("only", namespace="sinks")),
        )
        found = store.read(ListNamespaces())
        assert found == (
            NamespaceEntry("a", None),
            NamespaceEntry("c", None),
            NamespaceEntry("sinks", None),
            NamespaceEntry("team-a", FULL),
            NamespaceEntry("z", None),
        )
        assert store.read(ListNamespaces(limit=2)) == found[:2]
        assert _names(store.read(ListNamespaces(after="c", limit=1))) == ["sinks"]
        assert store.read(ListNamespaces(after="z")) == ()
        assert store.read(ListNamespaces(limit=0)) == ()

    def test_registered_workflows_are_listed_with_their_plans(self, store: Persistence) -> None:
        """By name and version, in pages, those of one namespace; a later registration of a version replaces it."""
        plan = PlanRow(fingerprint="f", workflow="w", version="1", body='{"of":"w"}')

        def row(name: str, version: str, at: int = NOW, **fields: str) -> WorkflowRow:
            given = {"namespace": NAMESPACE, "schemas": "{}", **fields}
            return WorkflowRow(name=name, version=version, plan="f", registered_at=at, **given)

        rows = [row("a", "1"), row("a", "2"), row("b", "1", schemas='{"input":{}}')]
        put(store, Insert(plan), *map(Insert, rows), Insert(row("a", "1", namespace="other")))
        put(store, Insert(row("a", "2", NOW + 1)))
        found = store.read(ListWorkflows(namespace=NAMESPACE))
        expected = [rows[0], row("a", "2", NOW + 1), rows[2]]
        assert found == tuple(StoredWorkflow(one, plan.body) for one in expected)
        assert store.read(ListWorkflows(namespace=NAMESPACE, limit=1)) == found[:1]
        assert store.read(ListWorkflows(namespace=NAMESPACE, after=found[0].place)) == found[1:]
        assert store.read(ListWorkflows(namespace=NAMESPACE, name="a")) == found[:2]
        assert store.read(ListWorkflows(namespace="none")) == store.read(ListWorkflows(namespace="\0")) == ()
        keys = query(store, lambda tx: tx.find(WorkflowsOfNamespace(NAMESPACE)))
        assert [*keys] == [(one.key, one.registered_at) for one in expected]
        put(store, Update(expected[0]), Delete(WORKFLOWS, rows[2].key))
        assert store.read(ListWorkflows(namespace=NAMESPACE)) == found[:2]

    def test_what_a_namespace_has_is_counted(self, store: Persistence) -> None:
        """Its runs by status, and its schedules, sinks and workers."""
        statuses = (RunStatus.RUNNING, RunStatus.RUNNING, RunStatus.FAILED)
        put(
            store,
            *(Insert(a_run(number, status=status)) for number, status in enumerate(statuses)),
            Insert(a_run(7, namespace="other")),
            Insert(a_schedule()),
            Insert(a_sink("a")),
            Insert(a_sink("b")),
            Insert(Registration(session=a_session(1).id, namespace=NAMESPACE, about="{}", lease=1)),
            Insert(TOPIC),
            *(Insert(evolve(MESSAGE, id=one)) for one in "abc"),
            *(Insert(evolve(SUBSCRIPTION, channel=one)) for one in "ab"),
            Insert(GROUP_OF_E),
            *(Insert(evolve(one, namespace="other")) for one in (TOPIC, MESSAGE, SUBSCRIPTION, GROUP_OF_E)),
        )
        assert store.read(CountNamespace(namespace=NAMESPACE)) == NamespaceCounts(
            runs={RunStatus.RUNNING: 2, RunStatus.FAILED: 1},
            schedules=1,
            sinks=2,
            workers=1,
            topics=1,
            messages=3,
            groups=1,
            subscriptions=2,
        )
        assert store.read(CountNamespace(namespace="none")) == NamespaceCounts(runs={})
        assert store.read(CountNamespace(namespace="\0")) == NamespaceCounts(runs={})

    def test_the_runs_that_count_against_quotas_are_counted_up_to_these(self, store: Persistence) -> None:
        """Active ones, in whatever state, and those created after an instant."""
        for number, status in enumerate(RunStatus):
            put(store, Insert(a_run(number, status=status, created_at=NOW + number)))
        put(store, Insert(a_run(99, namespace="other", created_at=NOW + 9)))

        def found(namespace: str, *numbers: int) -> tuple[int, int]:
            return store.transact(lambda tx: tx.find(NamespaceRuns(namespace, *numbers)))

        active, every = len(RunStatus) - 3, len(RunStatus)
        assert found(NAMESPACE, 100, NOW - 1, 100) == (active, every)
        assert found(NAMESPACE, 100, NOW, 100) == (active, every - 1)
        assert found(NAMESPACE, 2, NOW - 1, 3) == (2, 3)
        assert found(NAMESPACE, 0, NOW - 1, 0) == (0, 0)
        assert found("none", 100, 0, 100) == (0, 0)
        assert found("\0", 100, 0, 100) == (0, 0)

    def test_what_keeps_a_namespace_is_found(self, store: Persistence) -> None:
        """Its runs, ended or not, its schedules and its sinks."""
        put(store, Insert(a_run(1, namespace="a", status=RunStatus.COMPLETED)))
        put(store, Insert(a_schedule(namespace="a")), Insert(a_sink("s", namespace="b")))

        def parts(namespace: str) -> list[str]:
            return [*query(store, lambda tx: tx.find(NamespaceParts(namespace)))]

        put(
            store,
            Insert(evolve(TOPIC, namespace="d")),
            Insert(evolve(MESSAGE, namespace="e")),
            Insert(evolve(GROUP_OF_E, namespace="f")),
        )
        assert [parts(name) for name in "def"] == [["topics"]] * 3
        put(store, Insert(evolve(TOPIC, namespace="b")))
        assert parts("b") == ["sinks", "topics"]
        put(store, Delete(TOPICS, TopicName("b", TOPIC.name)))
        assert parts("a") == ["runs", "schedules"]
        assert parts("b") == ["sinks"]
        assert parts("c") == []
        assert parts("\0") == []
