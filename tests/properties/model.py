"""A reference model of the kernel in the plainest form: dictionaries, and values instead of references."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, TypeAlias

import attrs

from holdfast.kernel.pipelines.plan import MapPlan, NodePlan, Plan, stage_of
from holdfast.ports.records.job import JobKey, JobKind, PassOver, job_key
from holdfast.ports.records.run import ClosePolicy, RunStatus

Value: TypeAlias = Any
"""JSON."""


@attrs.frozen(order=True)
class Task:
    """What a job does: reads what a map goes over, or runs the body of a stage or of one item."""

    kind: JobKind
    node: str
    item: int | None = None


class Outcome(StrEnum):
    """How a run is doing."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@attrs.frozen(kw_only=True)
class Suspension:
    """Work that was handed on: what its check is given, how often that is made, until when, and what wakes it."""

    state: Value
    check_after: int
    give_up_at: int | None
    key: str


def body_of(task: Task) -> Task:
    """What a task is about: a stage, or an item of it, whoever does it and whoever asks about it."""
    return Task(JobKind.STAGE, task.node, task.item)


@attrs.define(kw_only=True)
class RunModel:
    """A run: the current group, what came into it, what its nodes gave, and what is kept of earlier ones.

    `passed` is what the test of the group said, if it has one; `lost` are items that failed where that is tolerated,
    with what the map gives for them; `skipped` are the stages that tests decided against, in whichever generation.

    `suspended` is work that was handed on, by the stage or item; `children` how many runs it has started.

    `given` is what the run was given. `ready` is what nodes of the current group gave in an earlier generation, and
    `origins` says of all such nodes in which one. `to_run` are the stages that this generation runs.
    """

    key: str
    plan: Plan
    given: Value
    came_in: Value = attrs.field(default=attrs.Factory(lambda self: self.given, takes_self=True))
    generation: int = 1
    ready: dict[str, Value] = attrs.field(factory=dict[str, Value])
    origins: dict[str, int] = attrs.field(factory=dict[str, int])
    to_run: tuple[str, ...] = attrs.field(
        default=attrs.Factory(lambda self: tuple(self.plan.nodes), takes_self=True)
    )
    failed_in: str | None = None
    status: Outcome = Outcome.RUNNING
    is_paused: bool = False
    group: int = 0
    items: dict[str, list[Value]] = attrs.field(factory=dict[str, list[Value]])
    gave: dict[Task, Value] = attrs.field(factory=dict[Task, Value])
    all_gave: dict[Task, Value] = attrs.field(factory=dict[Task, Value])
    kept: dict[str, Value] = attrs.field(factory=dict[str, Value])
    passed: bool | None = None
    lost: dict[Task, Value] = attrs.field(factory=dict[Task, Value])
    skipped: set[str] = attrs.field(factory=set[str])
    suspended: dict[Task, Suspension] = attrs.field(factory=dict[Task, Suspension])
    parent: str | None = None
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    children: int = 0
    _left: set[str] = attrs.field(factory=set[str], init=False)
    owed: list[str | None] = attrs.field(factory=list["str | None"])
    """Who is to be told of something: the job that waits for its end, or (None) its children."""
    debts: int = 0
    """How often somebody was to be told of something."""

    @property
    def run_status(self) -> RunStatus:
        """The status that the store must show."""
        return RunStatus.PAUSED if self.can_resume else RunStatus(self.status)

    @property
    def can_resume(self) -> bool:
        """Whether it is paused, and has not ended."""
        return self.is_paused and self.status is Outcome.RUNNING

    @property
    def nodes(self) -> tuple[NodePlan, ...]:
        """The nodes of the current group that are to be done, as far as that is known."""
        if self.status is not Outcome.RUNNING or self.group == len(self.plan.groups):
            return ()
        group = self.plan.groups[self.group]
        return tuple(node for node in group.nodes if node.name not in self.skipped)

    @property
    def _is_to_be_tested(self) -> bool:
        return self.plan.groups[self.group].test is not None and self.passed is None

    def tasks(self) -> Iterator[Task]:
        """Yield what must have a job now."""
        if self.nodes and self._is_to_be_tested:
            yield Task(JobKind.CONDITION, self.nodes[0].name)
            return
        for node in self.nodes:
            yield from self._tasks_of(node)

    def _tasks_of(self, node: NodePlan) -> Iterator[Task]:
        if node.name in self.ready:
            return
        if not isinstance(node, MapPlan):
            if Task(JobKind.STAGE, node.name) not in self.gave:
                yield self._done_by(Task(JobKind.STAGE, node.name))
        elif node.name not in self.items:
            yield Task(JobKind.EXPAND_MAP, node.name)
        else:
            items = [Task(JobKind.STAGE, node.name, item) for item in range(len(self.items[node.name]))]
            done = sum(item in self.gave for item in items)
            if node.enough is not None and node.enough.at_least is not None and done >= node.enough.at_least:
                return
            ended = done + sum(item in self.lost for item in items)
            yield from (
                self._done_by(item)
                for item in items[: ended + node.limit]
                if item not in self.gave and item not in self.lost
            )

    def _done_by(self, body: Task) -> Task:
        if body in self.suspended:
            return Task(JobKind.POLL, body.node, body.item)
        child = stage_of(self.plan.node(body.node)).child
        return body if child is None else Task(JobKind.CHILD, body.node, body.item)

    def gets(self, task: Task) -> Value:
        """What the body of a task must be given."""
        if task.kind is JobKind.POLL:
            return self.suspended[body_of(task)].state
        if task.item is not None:
            return self.items[task.node][task.item]
        if task.kind is JobKind.CONDITION:
            return self.came_in
        node = self.plan.node(task.node)
        return self.kept[node.over] if isinstance(node, MapPlan) and node.over else self.came_in

    def attempts_max(self, task: Task) -> int:
        """How often a task may be tried, whatever it fails by."""
        stage = stage_of(self.plan.node(task.node))
        if task.kind is JobKind.POLL and stage.check is not None:
            return stage.check.retry.attempts
        return max(policy.attempts for policy in (stage.retry, *(rule.policy for rule in stage.retry_rules)))

    def attempts_after(self, task: Task, rule: int | None) -> int:
        """How often a task may have been tried that has now failed under this rule, and is tried again."""
        stage = stage_of(self.plan.node(task.node))
        has_rule = rule is not None and rule < len(stage.retry_rules)
        return (stage.retry_rules[rule].policy if has_rule and rule is not None else stage.retry).attempts

    def expand(self, task: Task, items: list[Value]) -> None:
        """A map goes over these."""
        if self._may_lose(task.node, len(items)) < 0:
            self.end(Outcome.FAILED, task)
            return
        self.items[task.node] = items
        self._go_on()

    def complete(self, task: Task, value: Value) -> None:
        """A body gave this."""
        done = body_of(task)
        self.gave[done] = self.all_gave[done] = value
        self.suspended.pop(done, None)
        self._go_on()

    def suspend(self, task: Task, suspension: Suspension) -> None:
        """A body handed its work on."""
        self.suspended[body_of(task)] = suspension

    def test(self, task: Task, *, passed: bool) -> None:
        """The test of the current group said so."""
        nodes = [node.name for node in self.plan.groups[self.group].nodes]
        self.passed = passed
        self.skipped.update(nodes[1:] if passed else nodes[:1])
        assert task.node == nodes[0]
        self._go_on()

    def fail(self, task: Task, why: str) -> None:
        """Something failed for good: the run, unless this is an item of a map that may lose one more."""
        lost = sum(one.node == task.node for one in self.lost)
        if task.item is None or lost >= self._may_lose(task.node, len(self.items[task.node])):
            self.end(Outcome.FAILED, task)
            return
        self.lost[body_of(task)] = {"index": task.item, "error": why}
        self._go_on()

    def _may_lose(self, name: str, total: int) -> int:
        node = self.plan.node(name)
        enough = node.enough if isinstance(node, MapPlan) else None
        if enough is None:
            return 0
        return (
            max(enough.tolerated, int(enough.share * total))
            if not enough.at_least
            else total - enough.at_least
        )

    def end(self, status: Outcome, failed: Task | None = None) -> None:
        """The run is over: who waits for it is told, and who was started by it.

        All jobs are closed that are still open, and with them what is yet to be told to the children: it is told anew.
        """
        if any(task != failed for task in self.tasks()):
            self.owed = [whom for whom in self.owed if whom is not None]
        self.status = status
        self.failed_in = None if failed is None else failed.node
        if self.parent is not None:
            self.owe(self.parent)
        if self.children:
            self.owe(None)

    def owe(self, whom: str | None) -> None:
        """Somebody is to be told something: the job of that id, or all children."""
        self.owed.append(whom)
        self.debts += 1

    def done(self) -> dict[str, Value]:
        """What all stages gave that are done."""
        group = self.plan.groups[self.group] if self.group < len(self.plan.groups) else None
        if group is None or group.test is not None:
            return dict(self.kept)
        open_nodes = [node for node in group.nodes if any(True for _ in self._tasks_of(node))]
        return self.kept | {node.name: self._output(node) for node in group.nodes if node not in open_nodes}

    def stopped_at(self) -> str | None:
        """Where a rerun begins that is not told where: at the start if that is None."""
        if self.status is Outcome.COMPLETED:
            return None
        done = self.done()
        groups = self.plan.groups[: self.group]
        over = {node.name for group in groups for node in group.nodes} & self.skipped
        return self.failed_in or next(
            name for name in self.plan.nodes if name not in done and name not in over
        )

    def again(self, stage: str | None) -> "RunModel | None":
        """The generation after this one, that begins with a stage; None if it can't. Its key is not known yet."""
        done = self.done()
        start = stage or self.stopped_at()
        places = {node.name: at for at, group in enumerate(self.plan.groups) for node in group.nodes}
        if start is not None and start not in places:
            return None
        group = places[start] if start is not None else 0
        before = [name for name, at in places.items() if at < group]
        if group > self.group or not all(name in done or name in self.skipped for name in before):
            return None
        beside = [name for name, at in places.items() if at == group and name != start and name in done]
        is_choice = self.plan.groups[group].test is not None
        keeps = [name for name in before if name in done]
        keeps += beside if start is not None and not is_choice else ()
        came_in = self.given
        for one in self.plan.groups[:group]:
            outputs = [done[node.name] for node in one.nodes if node.name in done]
            came_in = outputs if one.parallel else next(iter(outputs), came_in)
        return RunModel(
            key="",
            plan=self.plan,
            given=self.given,
            came_in=came_in,
            generation=self.generation + 1,
            group=group,
            kept={name: done[name] for name in before if name in done},
            skipped=self.skipped & set(before),
            ready={name: done[name] for name in keeps if name not in before},
            origins={
                name: self.generation
                if done[name] == [] and isinstance(self.plan.node(name), MapPlan)
                else self.origins.get(name, self.generation)
                for name in keeps
            },
            to_run=tuple(name for name, at in places.items() if at >= group and name not in keeps),
            parent=self.parent if self.status is Outcome.RUNNING else None,
            close_policy=self.close_policy,
        )

    def _go_on(self) -> None:
        for node in self.nodes:
            self._leave_rest(node)
        if any(True for _ in self.tasks()):
            return
        outputs = {node.name: self._output(node) for node in self.nodes}
        is_list = self.plan.groups[self.group].parallel
        self.came_in = list(outputs.values()) if is_list else next(iter(outputs.values()), self.came_in)
        self.kept |= outputs
        self.items, self.gave, self.ready, self.lost, self.suspended = {}, {}, {}, {}, {}
        self.passed = None
        self.group += 1
        self._left = set()
        if self.group == len(self.plan.groups):
            self.end(Outcome.COMPLETED)

    def _leave_rest(self, node: NodePlan) -> None:
        """A map of runs that has enough leaves those that it has opened and that are still under way."""
        if not isinstance(node, MapPlan) or node.name in self._left or node.name not in self.items:
            return
        at_least = None if node.enough is None else node.enough.at_least
        items = [Task(JobKind.STAGE, node.name, item) for item in range(len(self.items[node.name]))]
        done = sum(item in self.gave for item in items)
        if at_least is None or done < at_least:
            return
        self._left.add(node.name)
        ended = done + sum(item in self.lost for item in items)
        # The last one that was done has opened none in its place.
        opened = min(len(items), max(ended - 1, 0) + node.limit)
        if node.stage.child is not None and opened > ended:
            self.owe(None)

    def _output(self, node: NodePlan) -> Value:
        if node.name in self.ready:
            return self.ready[node.name]
        if isinstance(node, MapPlan):
            items = [Task(JobKind.STAGE, node.name, item) for item in range(len(self.items[node.name]))]
            gave = [self.gave[item] for item in items if item in self.gave]
            lost = [self.lost[item] for item in items if item in self.lost]
            return gave if node.enough is None else {"results": gave, "failures": lost}
        return self.gave[Task(JobKind.STAGE, node.name)]


@attrs.define(kw_only=True)
class JobModel:
    """A job that has been claimed at least once. `holder` is the session that leases it, if one does."""

    id: str
    run: RunModel
    task: Task
    epoch: int = 0
    attempts: int = 0
    losses: int = 0
    holder: str | None = None
    wake_at: int | None = None
    """When it wakes, if nobody holds it; else when somebody asked for a check before there was one."""
    waits_for: str | None = None
    """The run whose end it waits for."""

    @property
    def key(self) -> JobKey:
        """How the store orders it."""
        return job_key(self.id)

    @property
    def is_live(self) -> bool:
        """Whether it is still to be done."""
        return self.run.status is Outcome.RUNNING and self.task in set(self.run.tasks())

    @property
    def is_suspect(self) -> bool:
        """Whether it was lost with two workers or more."""
        return self.losses >= 2

    @property
    def pass_over(self) -> PassOver:
        """What must not be claimed beside it."""
        if self.losses == 0:
            return PassOver.NOTHING
        return PassOver.LOST if self.is_suspect else PassOver.SUSPECTS


@attrs.define(kw_only=True)
class SessionModel:
    """A session."""

    id: str
    expires_at: int
    is_open: bool = True


NOT_HELD: Final = None


@attrs.define
class Model:
    """All of it."""

    runs: dict[str, RunModel] = attrs.field(factory=dict[str, RunModel])
    """The newest generations, by name."""
    older: list[RunModel] = attrs.field(factory=list[RunModel])
    jobs: dict[str, JobModel] = attrs.field(factory=dict[str, JobModel])
    sessions: dict[str, SessionModel] = attrs.field(factory=dict[str, SessionModel])

    def by_key(self, key: str) -> RunModel:
        """The run of this key."""
        return next(run for run in self.generations() if run.key == key)

    @property
    def debts(self) -> int:
        """How often anybody was to be told something, in all runs."""
        return sum(run.debts for run in self.generations())

    def generations(self) -> Iterator[RunModel]:
        """Yield all of them, of all runs."""
        yield from self.runs.values()
        yield from self.older

    def held(self, job: str, epoch: int) -> JobModel | None:
        """The job, if this attempt still holds it."""
        known = self.jobs.get(job)
        fits = known is not None and known.is_live and known.holder is not None and known.epoch == epoch
        return known if fits else NOT_HELD

    def live(self) -> Iterator[JobModel]:
        """Yield the jobs that have been claimed before and are not done."""
        return (job for job in self.jobs.values() if job.is_live)

    def claimed(self, id: str, run: str, task: Task) -> JobModel:
        """The model of a job; made when it is claimed for the first time."""
        return self.jobs.setdefault(id, JobModel(id=id, run=self.by_key(run), task=task))

    def queued(self) -> int:
        """How many jobs could be claimed."""
        due = sum(1 for run in self.runs.values() if not run.is_paused for _ in run.tasks())
        return due - sum(
            job.holder is not None or job.wake_at is not None or job.waits_for is not None
            for job in self.live()
            if not job.run.is_paused
        )

    def queued_after_a_loss(self) -> list[JobModel]:
        """The jobs that could be claimed and were lost with a worker."""
        return [
            job
            for job in self.live()
            if job.holder is None and job.wake_at is None and job.losses and not job.run.is_paused
            if job.waits_for is None
        ]

    def combine_pass_over(self, session: str) -> PassOver:
        """What this session must pass over, because of what it holds."""
        held = {job.pass_over for job in self.live() if job.holder == session}
        if PassOver.LOST in held:
            return PassOver.LOST
        return PassOver.SUSPECTS if PassOver.SUSPECTS in held else PassOver.NOTHING

    def asleep_until(self, now: int) -> list[JobModel]:
        """The sleepers that are due, earliest first."""
        due = [
            job
            for job in self.live()
            if job.wake_at is not None and job.wake_at <= now and not job.run.is_paused
            if job.holder is None
        ]
        return sorted(due, key=lambda job: (job.wake_at or 0, job.key))

    def pause(self, run: RunModel, now: int, *, paused: bool) -> None:
        """Pause or resume a run. Sleepers whose time has come sleep no longer."""
        run.is_paused = paused
        for job in self.live():
            is_due = job.holder is None and job.wake_at is not None and job.wake_at <= now
            if job.run is run and is_due:
                job.wake_at = None

    def expired(self, before: int) -> list[SessionModel]:
        """The open sessions that ended before this, by id."""
        ended = [one for one in self.sessions.values() if one.is_open and one.expires_at < before]
        return sorted(ended, key=lambda session: session.id)

    def lost(self) -> list[JobModel]:
        """The jobs that dead sessions hold, by key."""
        dead = {session.id for session in self.sessions.values() if not session.is_open}
        return sorted((job for job in self.live() if job.holder in dead), key=lambda job: job.key)
