"""A rerun runs exactly what its preview says, and keeps exactly the earlier outputs."""

from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Attempt,
    ChildRunStarted,
    Completed,
    MapExpanded,
    Outcome,
    RunRerunFrom,
    StageSuspended,
)
from holdfast.kernel.pipelines.plan import MapPlan, Plan, stage_of
from holdfast.kernel.runs.rerun_preview import RerunPreview, preview_rerun
from holdfast.ports.errors import CommandError, RerunRefusedError
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import RunStatus
from holdfast.ports.references import leaves, located, reference_text, references_from
from tests.properties.plans import pipelines
from tests.unit.kernel.world import SECOND, World, failed, payload, pipeline, stage

CHILD = pipeline(stage("k"), workflow="c")

_STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 11)), max_size=14)
_STARTS = st.lists(st.tuples(st.integers(0, 12), _STEPS), min_size=1, max_size=4)


@attrs.define
class Story:
    """A run, what its stages gave last, and what has run in its newest generation."""

    world: World
    plan: Plan
    generation: int = 1
    ran: set[str] = attrs.field(factory=set[str])
    sizes: dict[str, int] = attrs.field(factory=dict[str, int])
    gave: dict[str, dict[int | None, Any]] = attrs.field(factory=dict[str, dict[int | None, Any]])

    def body(self, attempt: Attempt) -> Outcome:
        """Run a body, or read what a map goes over; hand work on and ask about it; start a run, and do what it does."""
        if attempt.definition == CHILD.definition:
            return self._childs_body(attempt)
        self.ran.add(attempt.node)
        node = stage_of(self.plan.node(attempt.node))
        if attempt.kind is JobKind.CHILD:
            name = f"{attempt.run}/{attempt.node}/{attempt.item}"
            event("a child was started")
            return ChildRunStarted(
                run_id=name, workflow=CHILD.workflow, version=CHILD.version, input=payload(0)
            )
        if attempt.kind is JobKind.STAGE and node.check is not None:
            event("a stage was suspended")
            return StageSuspended(state=payload("handed on"), check_after=SECOND, key="k")
        if attempt.kind is JobKind.EXPAND_MAP:
            items = range((len(self.plan.nodes) + self.generation * 7) % 4)
            self.sizes[attempt.node], self.gave[attempt.node] = len(items), {}
            return MapExpanded(items=tuple(map(payload, items)))
        value = [attempt.node, attempt.item, self.generation]
        self._keep(attempt.node, attempt.item, value)
        return Completed(output=payload(value))

    def _keep(self, node: str, item: int | None, value: Any) -> None:
        of_node = self.gave.setdefault(node, {}) if item is not None else {}
        self.gave[node] = {**of_node, item: value}

    def _childs_body(self, attempt: Attempt) -> Outcome:
        """What it gives is what its stage gives, if that still waits for it."""
        name = self.world.tables().runs[attempt.run].id
        key, node, item = name.split("/")
        if key == self.world.run().key:
            self._keep(node, None if item == "None" else int(item), [name])
        return Completed(output=payload([name]))

    def work(self, steps: list[tuple[int, int]]) -> None:
        """Settle some of what there is; now and then something fails for good."""
        session = self.world.open(lease=100_000 * SECOND)
        for place, how in steps:
            attempts = self.world.claim(session)
            if not attempts:
                return
            chosen = attempts[place % len(attempts)]
            self.world.settle(chosen, self.body(chosen) if how else failed(retryable=False))
            for attempt in attempts:
                if attempt is not chosen:
                    self.world.release(attempt)
            self.world.deliver()
            self.world.wait(1)
            self.world.wake_due()

    def output(self, name: str) -> Any:
        """What a stage that is done gave last."""
        of_node = self.gave[name]
        if not isinstance(self.plan.node(name), MapPlan):
            return of_node[None]
        return [of_node[item] for item in range(self.sizes[name])]

    def preview(self, command: RunRerunFrom) -> RerunPreview | CommandError:
        """Ask what a rerun would do, which changes nothing."""
        with self.world.unchanged():
            try:
                return preview_rerun(self.world.store, self.world.kernel.workflows, command)
            except CommandError as error:
                return error

    def rerun(self, stage: str | None) -> RerunPreview | None:
        """Run it again; None if that is refused, as the preview has said."""
        preview = self.preview(RunRerunFrom(run_id="x", stage=stage))
        before = self.world.run()
        (answer,) = self.world.send(RunRerunFrom(run_id="x", stage=stage))
        if isinstance(answer, CommandError):
            assert isinstance(answer, RerunRefusedError)
            assert str(preview) == str(answer)
            return None
        assert isinstance(preview, RerunPreview)
        told = (answer.generation, answer.stage, answer.runs, answer.keeps, answer.terminated)
        assert told == (
            preview.generation,
            preview.stage,
            preview.runs,
            tuple(preview.keeps),
            preview.terminates,
        )
        assert preview.terminates == (before.status is RunStatus.RUNNING)
        self.generation, self.ran = answer.generation, set()
        self._look_at_what_is_kept(preview)
        return preview

    def _look_at_what_is_kept(self, preview: RerunPreview) -> None:
        run = self.world.run()
        kept = references_from(run.inherited)
        assert kept.keys() == preview.keeps.keys()
        for name, reference in kept.items():
            assert self.world.value(run.key, reference_text(reference)) == self.output(name)
            for leaf in leaves(reference):
                generation = self.world.run(generation=preview.keeps[name])
                assert located("here", leaf)[0] == generation.key
        if kept:
            event("something is kept")
        if len(set(preview.keeps.values())) > 1:
            event("something is kept of several generations")


def in_one_queue(plan: Plan) -> Plan:
    """The plan with all its jobs in the queue that is served."""
    groups = tuple(
        attrs.evolve(
            group,
            nodes=tuple(
                attrs.evolve(node, stage=attrs.evolve(node.stage, queue=None))
                if isinstance(node, MapPlan)
                else attrs.evolve(node, queue=None)
                for node in group.nodes
            ),
        )
        for group in plan.groups
    )
    return attrs.evolve(plan, groups=groups)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=pipelines(may_wait=True, child="c").map(in_one_queue), first=_STEPS, starts=_STARTS)
def test_what_is_previewed_is_what_runs(
    plan: Plan, first: list[tuple[int, int]], starts: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    story = Story(World(plan, CHILD), plan)
    story.world.create()
    story.work(first)
    stages = [None, None, *plan.nodes, "nothing"]
    for start, steps in starts:
        preview = story.rerun(stages[start % len(stages)])
        story.work(steps)
        if preview is None:
            event("a rerun is refused")
        else:
            assert story.ran <= set(preview.runs)
    last = story.rerun(None)
    assert last is not None
    story.world.drain(story.body)
    while any(one.status == "delivered" for one in story.world.deliver()):
        story.world.drain(story.body)

    assert story.world.run().status is RunStatus.COMPLETED
    assert story.ran == set(last.runs)
    outputs = [story.output(node.name) for node in plan.groups[-1].nodes]
    assert story.world.result() == (outputs if plan.groups[-1].parallel else outputs[0])
    for generation in range(1, story.generation):
        assert story.world.run(generation=generation).ended_at is not None
