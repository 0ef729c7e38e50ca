"""A pipeline's plan: its graph of stages as plain data, stored with its runs (docs/decisions/0004).

A plan names stages and their options; it holds no code. It is stored once for each fingerprint, and a run keeps the
plan that it was started with, so a deploy may change a pipeline while runs of the old plan are in flight.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from math import floor
from typing import Any, Final, TypeAlias, cast

import attrs

from holdfast.kernel.pipelines.gather_plan import GatherPlan, gather_from
from holdfast.kernel.pipelines.input_attributes import InputAttribute
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import Job, JobKind, remote_stage_definition
from holdfast.ports.records.limits import ConcurrencyPlan, OuterLevel, OverRate, RunRatePlan, WhenFull
from holdfast.ports.records.run import ClosePolicy
from holdfast.ports.structs import frozen

_ROUNDING: Final = 1e-9
"""Compensates float rounding: 29% of 100 items must be 29 items."""

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAP_LIMIT: Final = 1_000
"""Default limit of the map items that have jobs at the same time."""


LOSSES_MAX: Final = 10
"""How often in a row a function may be lost with its worker without making progress, before its run is blocked."""


@frozen(kw_only=True)
class RetryPolicy:
    """When and how often a failed body is retried."""

    attempts: int = 3
    """Maximum number of attempts; `ATTEMPTS_UNLIMITED` for no limit."""
    wait_us: int = 1_000_000
    """Wait before the first retry, in microseconds."""
    backoff: float = 2.0
    """Factor by which the wait grows with each retry."""
    wait_max_us: int = 300_000_000
    """Maximum wait, in microseconds, with jitter."""
    jitter: float = 0.2
    """Share of the wait that is added or subtracted at random, from 0 to 1, up to the maximum."""
    total_time_us: int | None = None
    """Time from the start of the first attempt after which no other attempt begins; None for no limit."""


@frozen(kw_only=True)
class RetryRule:
    """The retry policy for errors of one class. The host matches errors, because only it has the class."""

    error: str
    """The name of the class, for display."""
    policy: RetryPolicy


@frozen(kw_only=True)
class StepsPlan:
    """The policy of the steps of a durable function that have none of their own: the default of the engine."""

    retry: RetryPolicy
    retry_rules: tuple[RetryRule, ...] = ()


@frozen(kw_only=True)
class CheckPlan:
    """Options of the check that polls an external stage's work: a body of its own."""

    retry: RetryPolicy = RetryPolicy()
    timeout_us: int | None = None


@frozen(kw_only=True)
class CancelPlan:
    """Options of the function that cancels an external stage's work: a body of its own."""

    retry: RetryPolicy = RetryPolicy()
    timeout_us: int | None = None


@frozen(kw_only=True)
class ChildPlan:
    """The workflow that a stage starts as a child run, and waits for."""

    workflow: str
    version: str
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    """What happens to the child run if its parent run ends first."""
    parameters: tuple[str, ...] | None = None
    """Parameters of a durable function that receive the stage's input: one gets it whole, several get a part each."""
    deadline_us: int | None = None
    """How long the child run may take; None for the deadline of its workflow."""
    attributes: str | None = None
    """JSON text of the child run's attributes; None for those of its parent."""
    weight: int | None = None
    """How many turns the child run's key gets; None for as many as before."""
    attributes_from: tuple[InputAttribute, ...] | None = None
    """The attributes that the workflow takes from the child run's input."""
    headers: str | None = None
    """JSON text of the headers that the child run has besides those of its parent."""


@frozen(kw_only=True)
class RemotePlan:
    """What a remote worker needs of a stage beside its options, as it does not have the code of the pipeline."""

    give_up_on: tuple[str, ...] = ()
    """The names of the error classes that are final."""


@frozen(kw_only=True)
class RatePlan:
    """A rate limit: at most `limit` starts in any span of `per_us` microseconds."""

    limit: int
    per_us: int
    name: str | None = None
    """Stages and steps with this name share the limit; without a name, it is for one stage or step alone."""
    by: str | None = None
    """An attribute: the limit is counted separately for each text that runs have in it."""


@frozen(kw_only=True)
class SlotsPlan:
    """Which bodies share the slots of a concurrency limit, if not only those of one stage or step."""

    name: str | None = None
    """Stages and steps with this name share the slots; without a name, they are for one stage or step alone."""
    by: str | None = None
    """An attribute: there are slots of their own for each text that runs have in it."""


@frozen(kw_only=True)
class StagePlan:
    """A stage with its options.

    With a `check`, its body submits external work, which is polled; a `cancel` cancels that work once it is abandoned.
    With a `child`, the stage is a child run. With `remote`, remote workers run its body, and no worker with the code
    does. With `function`, it is a durable function: the whole plan has just this
    stage.
    """

    name: str
    queue: str | None = None
    priority: int | None = None
    retry: RetryPolicy = RetryPolicy()
    """The policy for errors without a rule in `retry_rules`. Of a durable function: of its whole run."""
    timeout_us: int | None = None
    """Maximum duration of one attempt."""
    config: str | None = None
    """The stage's config as canonical JSON."""
    retry_rules: tuple[RetryRule, ...] = ()
    timeout_total_us: int | None = None
    """Maximum duration of all attempts, from the first claim."""
    heartbeat_timeout_us: int | None = None
    """Maximum time between heartbeats of an attempt."""
    max_concurrency: int | None = None
    """Maximum number of bodies at a time, in all runs of the workflow in a namespace."""
    slots: SlotsPlan | None = None
    """Who shares this limit; None: the bodies of this stage."""
    rate: RatePlan | None = None
    check: CheckPlan | None = None
    child: ChildPlan | None = None
    function: bool = False
    cancel: CancelPlan | None = None
    steps: StepsPlan | None = None
    """Of a durable function: the default policy of its steps; None for that of `RetryPolicy`."""
    remote: RemotePlan | None = None
    """Of a stage that remote workers run."""

    def is_remote(self, kind: JobKind) -> bool:
        """Whether remote workers run its jobs of this kind: only its body is theirs."""
        return self.remote is not None and kind is JobKind.STAGE

    def definition(self, workflow: str, kind: JobKind) -> str:
        """Return the code that its jobs of this kind need; `workflow` is the definition of its plan."""
        return remote_stage_definition(self.name) if self.is_remote(kind) else workflow

    def queue_of(self, run: str, kind: JobKind) -> str:
        """Return the queue of its jobs of this kind; `run` is the queue of the run.

        The queue of a remote stage is for remote workers: what its pipeline's own workers do for it is in the run's.
        """
        is_theirs = self.remote is None or kind is JobKind.STAGE
        return (self.queue if is_theirs else None) or run

    @property
    def max_attempts(self) -> int:
        """The maximum number of attempts, for any error; for a function, the maximum number of losses in a row."""
        if self.function:
            return LOSSES_MAX
        return max(self.retry.attempts, *(rule.policy.attempts for rule in self.retry_rules), 1)

    def policy(self, rule: int | None) -> RetryPolicy:
        """Return the retry policy of this rule; the policy of the stage if there is no such rule."""
        known = rule is not None and 0 <= rule < len(self.retry_rules)
        return self.retry_rules[rule].policy if known and rule is not None else self.retry


_ADDED: Final = ("base", "queue", "priority", "deadline_us", "fair")
"""Fields of plans that are omitted if they are None, for the same reason."""
_OMITTED: Final = frozenset(
    {"total_time_us", "parameters", "deadline_us", "attributes", "weight", "attributes_from", "headers"}
)
"""Fields of parts of a stage that are omitted if they are None, for the same reason."""

_ALWAYS_STORED: Final = frozenset({"name", "queue", "priority", "retry", "timeout_us", "config"})
"""Fields that are always stored. Others are omitted at their default, so that older plans keep their fingerprints."""


@frozen(kw_only=True)
class Enough:
    """When a map may end early, or with failed items.

    With `at_least`, so many items must complete, and the others are then given up. Otherwise as many items as
    `tolerated`, or that `share` of all, whichever is more, may fail.
    """

    at_least: int | None = None
    tolerated: int = 0
    share: float = 0.0

    def is_reached(self, *, total: int, done: int, failed: int) -> bool:
        """Whether the map has ended."""
        return done + failed >= total or (self.at_least is not None and done >= self.at_least)

    def is_missed(self, *, total: int, failed: int) -> bool:
        """Whether the map has failed: too few items can still complete."""
        if self.at_least is not None:
            return total - failed < self.at_least
        return failed > max(self.tolerated, floor(self.share * total + _ROUNDING))


@frozen(kw_only=True)
class MapPlan:
    """A stage that runs once for each item of the input, or of the output of the stage `over`."""

    stage: StagePlan
    over: str | None = None
    limit: int = DEFAULT_MAP_LIMIT
    """Maximum number of items that have jobs at the same time."""
    enough: Enough | None = None
    """The completion policy; without one, every item must complete."""

    @property
    def name(self) -> str:
        """The name of the mapped stage."""
        return self.stage.name


NodePlan: TypeAlias = StagePlan | MapPlan


@frozen(kw_only=True)
class Group:
    """Nodes that run at the same time, all with the same input.

    The output is that of the one node or, if `parallel`, the list of all outputs in the order of the nodes.
    """

    nodes: tuple[NodePlan, ...]
    parallel: bool = False
    test: str | None = None
    """The name of the condition of a `when`, for display.

    If it returns true the first node runs, else the second; without a second node, the input is passed on.
    """


@frozen(kw_only=True, cache_hash=True)
class Plan:
    """A plan: groups of nodes, each with the output of the previous group as its input."""

    workflow: str
    version: str
    groups: tuple[Group, ...]
    base: str | None = None
    """The fingerprint of the pipeline's own plan, if this is a plan with overrides."""
    queue: str | None = None
    """The queue of its runs, unless they are given another; None: the default queue."""
    priority: int | None = None
    """The priority of its runs, unless they are given another."""
    deadline_us: int | None = None
    """How long its runs may take, unless they are given another deadline."""
    fair: str | None = None
    """The attribute by whose texts its runs share workers (see `kernel/limits/fairness.py`); None: by arrival."""
    gather: GatherPlan | None = None
    """How its starts are gathered into one run; None: each is a run of its own."""
    concurrency: ConcurrencyPlan | None = None
    """The concurrency limit of its runs, unless they are given another."""
    rate: RunRatePlan | None = None
    """The rate of starts that its runs count against, unless they are given another."""
    attributes_from: tuple[InputAttribute, ...] = ()
    """The attributes that it takes from the input of its runs."""

    def to_json(self) -> str:
        """Return the plan as stored canonical JSON."""
        data: dict[str, object] = {
            "workflow": self.workflow,
            "version": self.version,
            "groups": [_group_data(group) for group in self.groups],
        }
        given = {name: getattr(self, name) for name in _ADDED}
        given["gather"] = None if self.gather is None else self.gather.to_data()
        if self.concurrency is not None:
            given["concurrency"] = concurrency_data(self.concurrency)
        if self.rate is not None:
            given["rate"] = rate_data(self.rate)
        if self.attributes_from:
            given["attributes_from"] = [*map(attrs.asdict, self.attributes_from)]
        return canonical({**data, **{name: value for name, value in given.items() if value is not None}})

    @cached_property
    def fingerprint(self) -> str:
        """The key of the stored plan: the first 32 hex digits of its SHA-256."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    @cached_property
    def nodes(self) -> Mapping[str, NodePlan]:
        """The nodes by name."""
        return {node.name: node for group in self.groups for node in group.nodes}

    @cached_property
    def mapped_over(self) -> frozenset[str]:
        """The names of nodes that a later map runs over: the progress of a run keeps their outputs."""
        return frozenset(node.over for node in self.nodes.values() if isinstance(node, MapPlan) and node.over)

    @cached_property
    def limited(self) -> tuple[StagePlan, ...]:
        """The stages with a concurrency limit or a rate limit."""
        stages = map(stage_of, self.nodes.values())
        return tuple(one for one in stages if one.max_concurrency is not None or one.rate is not None)

    @cached_property
    def cancels(self) -> Mapping[str, int]:
        """The stages that cancel their external work, with the maximum number of attempts of the cancel function."""
        stages = (stage_of(node) for node in self.nodes.values())
        return {stage.name: stage.cancel.retry.attempts for stage in stages if stage.cancel is not None}

    @cached_property
    def function(self) -> str | None:
        """The name of its one stage, if that is a durable function; None for a pipeline."""
        return next((node.name for node in self.nodes.values() if stage_of(node).function), None)

    @cached_property
    def run_attempts(self) -> int:
        """The maximum number of attempts of a whole run, for any error: 1 unless it is a function with a policy."""
        if self.function is None:
            return 1
        stage = stage_of(self.nodes[self.function])
        return max(one.attempts for one in (stage.retry, *(rule.policy for rule in stage.retry_rules)))

    @property
    def definition(self) -> str:
        """The code that jobs of this plan need: `<workflow>@<version>`."""
        return f"{self.workflow}@{self.version}"

    def node(self, name: str) -> NodePlan:
        """Return the node of this name. KeyError if the plan has no such node."""
        return self.nodes[name]


@lru_cache(maxsize=256)
def plan_from_json(text: str) -> Plan:
    """Return the plan with this JSON text. Equal texts give the same object."""
    data = cast("dict[str, object]", parse(text))
    groups = cast("list[dict[str, object]]", data["groups"])
    return Plan(
        workflow=cast("str", data["workflow"]),
        version=cast("str", data["version"]),
        **cast("dict[str, Any]", {name: data.get(name) for name in _ADDED}),
        gather=gather_from(data.get("gather")),
        concurrency=_concurrency_from(data.get("concurrency")),
        rate=_rate_from(data.get("rate")),
        attributes_from=_attributes_from(data.get("attributes_from", ())),
        groups=tuple(
            Group(
                parallel=cast("bool", group["parallel"]),
                nodes=tuple(_node_from(node) for node in cast("list[dict[str, object]]", group["nodes"])),
                test=cast("str | None", group.get("test")),
            )
            for group in groups
        ),
    )


def stage_of(node: NodePlan) -> StagePlan:
    """Return the stage of a node."""
    return node.stage if isinstance(node, MapPlan) else node


def policy_of(plan: Plan, job: Job, rule: int | None) -> RetryPolicy:
    """Return the retry policy of a job for errors that match this rule of its stage (None: no rule)."""
    stage = stage_of(plan.node(job.node))
    if job.kind is JobKind.CANCEL and stage.cancel:
        return stage.cancel.retry
    return stage.check.retry if job.kind is JobKind.POLL and stage.check else stage.policy(rule)


_DEFAULT_STAGE: Final = StagePlan(name="")


# Fields that were added to plans later are omitted at their default, so that older plans keep their fingerprints.


def _group_data(group: Group) -> dict[str, object]:
    data: dict[str, object] = {
        "parallel": group.parallel,
        "nodes": [_node_data(node) for node in group.nodes],
    }
    return data if group.test is None else {**data, "test": group.test}


def _is_stored(field: "attrs.Attribute[Any]", value: object) -> bool:
    return value is not None or field.name not in _OMITTED


def _node_data(node: NodePlan) -> dict[str, object]:
    plan = stage_of(node)
    stage = {
        name: value
        for name, value in attrs.asdict(plan, filter=_is_stored).items()
        if name in _ALWAYS_STORED or value != getattr(_DEFAULT_STAGE, name)
    }
    if not isinstance(node, MapPlan):
        return {"kind": "stage", "stage": stage}
    data: dict[str, object] = {"kind": "map", "stage": stage, "over": node.over, "limit": node.limit}
    return data if node.enough is None else {**data, "enough": attrs.asdict(node.enough)}


def _node_from(data: dict[str, object]) -> NodePlan:
    stage = _stage_from(cast("dict[str, object]", data["stage"]))
    if data["kind"] != "map":
        return stage
    enough = cast("dict[str, int] | None", data.get("enough"))
    return MapPlan(
        stage=stage,
        over=cast("str | None", data["over"]),
        limit=cast("int", data["limit"]),
        enough=None if enough is None else Enough(**enough),
    )


def _stage_from(data: dict[str, object]) -> StagePlan:
    fields = dict(data)
    retry = _policy_from(fields.pop("retry"))
    rules = _rules_from(fields.pop("retry_rules", []))
    check = cast("dict[str, object] | None", fields.pop("check", None))
    child = cast("dict[str, Any] | None", fields.pop("child", None))
    rate = cast("dict[str, Any] | None", fields.pop("rate", None))
    cancel = cast("dict[str, object] | None", fields.pop("cancel", None))
    steps = cast("dict[str, object] | None", fields.pop("steps", None))
    slots = cast("dict[str, Any] | None", fields.pop("slots", None))
    remote = cast("dict[str, Any] | None", fields.pop("remote", None))
    return StagePlan(
        retry=retry,
        retry_rules=rules,
        rate=None if rate is None else RatePlan(**rate),
        slots=None if slots is None else SlotsPlan(**slots),
        check=None if check is None else _check_from(check),
        child=None if child is None else _child_from(child),
        cancel=None if cancel is None else _cancel_from(cancel),
        remote=None if remote is None else RemotePlan(give_up_on=tuple(remote["give_up_on"])),
        steps=None
        if steps is None
        else StepsPlan(retry=_policy_from(steps["retry"]), retry_rules=_rules_from(steps["retry_rules"])),
        **cast("dict[str, str]", fields),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )


def _policy_from(data: object) -> RetryPolicy:
    return RetryPolicy(**cast("dict[str, int]", data))


def _rules_from(data: object) -> tuple[RetryRule, ...]:
    rules = cast("list[dict[str, object]]", data)
    return tuple(
        RetryRule(error=cast("str", one["error"]), policy=_policy_from(one["policy"])) for one in rules
    )


def _check_from(data: dict[str, object]) -> CheckPlan:
    return CheckPlan(retry=_policy_from(data["retry"]), timeout_us=cast("int | None", data["timeout_us"]))


def _cancel_from(data: dict[str, object]) -> CancelPlan:
    return CancelPlan(retry=_policy_from(data["retry"]), timeout_us=cast("int | None", data["timeout_us"]))


def concurrency_data(concurrency: ConcurrencyPlan) -> dict[str, object]:
    """Return a concurrency limit as JSON data, without the fields that have their default."""
    usual = ConcurrencyPlan()
    given = {**attrs.asdict(concurrency), "within": concurrency.within}
    if concurrency.within:
        given["within"] = [_level_data(level) for level in concurrency.within]
    return {name: value for name, value in given.items() if value != getattr(usual, name)}


def _level_data(level: OuterLevel) -> dict[str, object]:
    return {name: value for name, value in attrs.asdict(level).items() if value is not None}


def rate_data(rate: RunRatePlan) -> dict[str, object]:
    """Return a rate of starts as JSON data, without the fields that have their default."""
    usual = RunRatePlan(limit=0, period=0)
    return {name: value for name, value in attrs.asdict(rate).items() if value != getattr(usual, name)}


def _rate_from(data: object) -> RunRatePlan | None:
    if data is None:
        return None
    fields = cast("dict[str, Any]", data)
    given: dict[str, Any] = {**fields, "over": OverRate(fields.get("over", OverRate.WAIT))}
    return RunRatePlan(**given)


def _concurrency_from(data: object) -> ConcurrencyPlan | None:
    if data is None:
        return None
    fields = cast("dict[str, Any]", data)
    given: dict[str, Any] = {**fields, "full": WhenFull(fields.get("full", WhenFull.WAIT))}
    given["within"] = tuple(OuterLevel(**level) for level in fields.get("within", ()))
    return ConcurrencyPlan(**given)


def _attributes_from(data: object) -> tuple[InputAttribute, ...]:
    return tuple(InputAttribute(**one) for one in cast("Sequence[dict[str, str]]", data))


def _child_from(data: dict[str, Any]) -> ChildPlan:
    policy, parameters = ClosePolicy(data["close_policy"]), data.get("parameters")
    taken = data.get("attributes_from")
    return ChildPlan(
        workflow=data["workflow"],
        version=data["version"],
        close_policy=policy,
        parameters=None if parameters is None else tuple(parameters),
        deadline_us=data.get("deadline_us"),
        attributes=data.get("attributes"),
        weight=data.get("weight"),
        attributes_from=None if taken is None else _attributes_from(taken),
        headers=data.get("headers"),
    )
