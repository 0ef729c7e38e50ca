"""A pipeline's plan: what runs after what, as plain data that is stored with the run.

A plan names stages and says how to treat them; it holds no code. It is stored once for each fingerprint, and a run
keeps the plan that it was created with, so a deploy may change a pipeline while runs of the old plan are in flight.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property, lru_cache
from math import floor
from typing import Any, Final, TypeAlias, cast

import attrs

from holdfast.ports.json import canonical, parse
from holdfast.ports.records import ClosePolicy
from holdfast.ports.structs import frozen

_ROUNDING: Final = 1e-9
"""So that a share of 0.29 of 100 items is 29 of them, whatever a float makes of it."""

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAP_LIMIT: Final = 1_000
"""How many items of a map have jobs at once where its author did not say."""


LOSSES_MAX: Final = 10
"""How often in a row a function may be lost with its worker without having come further. Then its run is blocked."""


@frozen(kw_only=True)
class RetryPolicy:
    """How often, and how patiently, a body is tried again. Times are in microseconds."""

    attempts: int = 3
    wait_us: int = 1_000_000
    backoff: float = 2.0
    wait_max_us: int = 300_000_000
    jitter: float = 0.2


@frozen(kw_only=True)
class RetryRule:
    """How attempts are repeated that failed by some kinds of errors. `error` names their class for people.

    Which errors these are is for the host to say: it has the class, and a name is never imported.
    """

    error: str
    policy: RetryPolicy


@frozen(kw_only=True)
class CheckPlan:
    """How an external stage's check is treated: as a body of its own."""

    retry: RetryPolicy = RetryPolicy()
    timeout_us: int | None = None


@frozen(kw_only=True)
class CancelPlan:
    """How what cancels an external stage's work is treated: as a body of its own."""

    retry: RetryPolicy = RetryPolicy()
    timeout_us: int | None = None


@frozen(kw_only=True)
class ChildPlan:
    """Which workflow a stage is, if it is one: a run of its own, which its parent waits for.

    `close_policy` is what becomes of it if its parent ends first. Of a durable function `parameters` are the names of
    those that the stage's value is given to: as a whole if it is one, shared out if there are several.
    """

    workflow: str
    version: str
    close_policy: ClosePolicy = ClosePolicy.CANCEL
    parameters: tuple[str, ...] | None = None


@frozen(kw_only=True)
class RatePlan:
    """How many bodies may start in any span of so many microseconds.

    With a `name` those of all stages count together that name it, otherwise those of the stage. With `by` those count
    together whose runs have the same text in the attribute of this name.
    """

    limit: int
    per_us: int
    name: str | None = None
    by: str | None = None


@frozen(kw_only=True)
class StagePlan:
    """One stage. `config` is the canonical JSON of its config, or None.

    `retry` is for failures that none of the `retry_rules` is for. `timeout_us` is for one attempt, `timeout_total_us`
    for all of them, from the first claim on; `heartbeat_timeout_us` is how long an attempt may say nothing.
    At most `max_concurrency` of its bodies, in all runs of the workflow in a namespace, are under way at a time.

    With a `check` its work is done elsewhere, and asked about, and with a `cancel` it is cancelled once nobody waits
    for it any more; with a `child` it is a run of another pipeline. A `function` is driven: its attempts record what
    its calls come to, and it rests while it waits.
    """

    name: str
    queue: str | None = None
    priority: int | None = None
    retry: RetryPolicy = RetryPolicy()
    timeout_us: int | None = None
    config: str | None = None
    retry_rules: tuple[RetryRule, ...] = ()
    timeout_total_us: int | None = None
    heartbeat_timeout_us: int | None = None
    max_concurrency: int | None = None
    rate: RatePlan | None = None
    check: CheckPlan | None = None
    child: ChildPlan | None = None
    function: bool = False
    cancel: CancelPlan | None = None

    @property
    def max_attempts(self) -> int:
        """How many attempts there can be, whatever they fail by. Of a function: how many can be lost in a row."""
        if self.function:
            return LOSSES_MAX
        return max(self.retry.attempts, *(rule.policy.attempts for rule in self.retry_rules), 1)

    def policy(self, rule: int | None) -> RetryPolicy:
        """Return the policy of this rule; that of the stage if there is no such rule."""
        known = rule is not None and 0 <= rule < len(self.retry_rules)
        return self.retry_rules[rule].policy if known and rule is not None else self.retry


_ALWAYS_STORED: Final = frozenset({"name", "queue", "priority", "retry", "timeout_us", "config"})
"""Other fields are left out where they say nothing, so that plans without them keep their fingerprints."""


@frozen(kw_only=True)
class Enough:
    """When a map is done although not all of its items are: so many done, or so many failed and no more.

    `at_least` is how many have to be done; the others are then given up. Otherwise at most `tolerated` items, or that
    `share` of all, whichever is more, may fail.
    """

    at_least: int | None = None
    tolerated: int = 0
    share: float = 0.0

    def is_reached(self, *, total: int, done: int, failed: int) -> bool:
        """Whether nothing more has to be done."""
        return done + failed >= total or (self.at_least is not None and done >= self.at_least)

    def is_missed(self, *, total: int, failed: int) -> bool:
        """Whether it can't be reached any more."""
        if self.at_least is not None:
            return total - failed < self.at_least
        return failed > max(self.tolerated, floor(self.share * total + _ROUNDING))


@frozen(kw_only=True)
class MapPlan:
    """One stage done once for each item of what comes in, or of what the stage `over` gave.

    At most `limit` items have jobs at once. Without `enough` every item must be done.
    """

    stage: StagePlan
    over: str | None = None
    limit: int = DEFAULT_MAP_LIMIT
    enough: Enough | None = None

    @property
    def name(self) -> str:
        """The name of the mapped stage."""
        return self.stage.name


NodePlan: TypeAlias = StagePlan | MapPlan


@frozen(kw_only=True)
class Group:
    """Nodes that are done at the same time, all with what came in.

    What goes on is the one node's output or, if `parallel`, the list of all outputs in the order of the nodes.

    With a `test`, which is the name of a function for people to read, only one of them is done: the first if the test
    says so, otherwise the second. If there is no second, what came in goes on.
    """

    nodes: tuple[NodePlan, ...]
    parallel: bool = False
    test: str | None = None


@frozen(kw_only=True, cache_hash=True)
class Plan:
    """Groups of nodes, each fed by the one before.

    `base` is the fingerprint of the pipeline's plan, if this is that of a run whose stages are treated otherwise.
    """

    workflow: str
    version: str
    groups: tuple[Group, ...]
    base: str | None = None

    def to_json(self) -> str:
        """Return the canonical JSON text that is stored."""
        data: dict[str, object] = {
            "workflow": self.workflow,
            "version": self.version,
            "groups": [_group_data(group) for group in self.groups],
        }
        if self.base is not None:
            data["base"] = self.base
        return canonical(data)

    @cached_property
    def fingerprint(self) -> str:
        """The name under which this plan is stored: 32 hex digits of its sha256."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    @cached_property
    def nodes(self) -> Mapping[str, NodePlan]:
        """The nodes by name."""
        return {node.name: node for group in self.groups for node in group.nodes}

    @cached_property
    def mapped_over(self) -> frozenset[str]:
        """The names of the nodes that a later map goes over, whose outputs a run therefore keeps at hand."""
        return frozenset(node.over for node in self.nodes.values() if isinstance(node, MapPlan) and node.over)

    @cached_property
    def limited(self) -> tuple[StagePlan, ...]:
        """The stages of which only so many may be under way, or start in a time."""
        stages = map(stage_of, self.nodes.values())
        return tuple(one for one in stages if one.max_concurrency is not None or one.rate is not None)

    @cached_property
    def cancels(self) -> Mapping[str, int]:
        """The stages whose external work is cancelled if they end without it, with how often that may be tried."""
        stages = (stage_of(node) for node in self.nodes.values())
        return {stage.name: stage.cancel.retry.attempts for stage in stages if stage.cancel is not None}

    @cached_property
    def function(self) -> str | None:
        """The name of its one stage, if that is a durable function; None if it is a pipeline."""
        return next((node.name for node in self.nodes.values() if stage_of(node).function), None)

    @property
    def definition(self) -> str:
        """How jobs name the code that they need: `<workflow>@<version>`."""
        return f"{self.workflow}@{self.version}"

    def node(self, name: str) -> NodePlan:
        """Return the node of this name; KeyError if the plan has none."""
        return self.nodes[name]


@lru_cache(maxsize=256)
def plan_from_json(text: str) -> Plan:
    """Return the plan whose `to_json` this is. It is read once, and shared by all who ask for it."""
    data = cast("dict[str, object]", parse(text))
    groups = cast("list[dict[str, object]]", data["groups"])
    return Plan(
        workflow=cast("str", data["workflow"]),
        version=cast("str", data["version"]),
        base=cast("str | None", data.get("base")),
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
    """Return the stage that a node runs."""
    return node.stage if isinstance(node, MapPlan) else node


_DEFAULT_STAGE: Final = StagePlan(name="")


# What was added to plans later is left out where it says nothing, so that a plan keeps its fingerprint.


def _group_data(group: Group) -> dict[str, object]:
    data: dict[str, object] = {
        "parallel": group.parallel,
        "nodes": [_node_data(node) for node in group.nodes],
    }
    return data if group.test is None else {**data, "test": group.test}


def _node_data(node: NodePlan) -> dict[str, object]:
    plan = stage_of(node)
    stage = {
        name: value
        for name, value in attrs.asdict(plan).items()
        if name in _ALWAYS_STORED or value != getattr(_DEFAULT_STAGE, name)
    }
    if plan.child is not None and plan.child.parameters is None:
        del stage["child"]["parameters"]
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
    rules = tuple(map(_rule_from, cast("list[dict[str, object]]", fields.pop("retry_rules", []))))
    check = cast("dict[str, object] | None", fields.pop("check", None))
    child = cast("dict[str, Any] | None", fields.pop("child", None))
    rate = cast("dict[str, Any] | None", fields.pop("rate", None))
    cancel = cast("dict[str, object] | None", fields.pop("cancel", None))
    return StagePlan(
        retry=retry,
        retry_rules=rules,
        rate=None if rate is None else RatePlan(**rate),
        check=None if check is None else _check_from(check),
        child=None if child is None else _child_from(child),
        cancel=None if cancel is None else _cancel_from(cancel),
        **cast("dict[str, str]", fields),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    )


def _policy_from(data: object) -> RetryPolicy:
    return RetryPolicy(**cast("dict[str, int]", data))


def _rule_from(data: dict[str, object]) -> RetryRule:
    return RetryRule(error=cast("str", data["error"]), policy=_policy_from(data["policy"]))


def _check_from(data: dict[str, object]) -> CheckPlan:
    return CheckPlan(retry=_policy_from(data["retry"]), timeout_us=cast("int | None", data["timeout_us"]))


def _cancel_from(data: dict[str, object]) -> CancelPlan:
    return CancelPlan(retry=_policy_from(data["retry"]), timeout_us=cast("int | None", data["timeout_us"]))


def _child_from(data: dict[str, Any]) -> ChildPlan:
    policy, parameters = ClosePolicy(data["close_policy"]), data.get("parameters")
    return ChildPlan(
        workflow=data["workflow"],
        version=data["version"],
        close_policy=policy,
        parameters=None if parameters is None else tuple(parameters),
    )
