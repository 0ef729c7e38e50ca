"""A pipeline's plan: what runs after what, as plain data that is stored with the run.

A plan names stages and says how to treat them; it holds no code. It is stored once for each fingerprint, and a run
keeps the plan that it was created with, so a deploy may change a pipeline while runs of the old plan are in flight.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Final, TypeAlias, cast

import attrs

from holdfast.ports.json import canonical, parse

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAP_LIMIT: Final = 1_000
"""How many items of a map have jobs at once where its author did not say."""


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """How often, and how patiently, a body is tried again. Times are in microseconds."""

    attempts: int = 3
    wait_us: int = 1_000_000
    backoff: float = 2.0
    wait_max_us: int = 300_000_000
    jitter: float = 0.2


@attrs.frozen(kw_only=True)
class RetryRule:
    """How attempts are repeated that failed by some kinds of errors. `error` names their class for people.

    Which errors these are is for the host to say: it has the class, and a name is never imported.
    """

    error: str
    policy: RetryPolicy


@attrs.frozen(kw_only=True)
class StagePlan:
    """One stage. `config` is the canonical JSON of its config, or None.

    `retry` is for failures that none of the `retry_rules` is for. `timeout_us` is for one attempt, `timeout_total_us`
    for all of them, from the first claim on; `heartbeat_timeout_us` is how long an attempt may say nothing.
    At most `max_concurrency` of its bodies, in all runs of the workflow in a namespace, are under way at a time.
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

    @property
    def max_attempts(self) -> int:
        """How many attempts there can be, whatever they fail by."""
        return max(self.retry.attempts, *(rule.policy.attempts for rule in self.retry_rules), 1)

    def policy(self, rule: int | None) -> RetryPolicy:
        """Return the policy of this rule; that of the stage if there is no such rule."""
        known = rule is not None and 0 <= rule < len(self.retry_rules)
        return self.retry_rules[rule].policy if known and rule is not None else self.retry


_ALWAYS_STORED: Final = frozenset({"name", "queue", "priority", "retry", "timeout_us", "config"})
"""Other fields are left out where they say nothing, so that plans without them keep their fingerprints."""


@attrs.frozen(kw_only=True)
class MapPlan:
    """One stage done once for each item of what comes in, or of what the stage `over` gave.

    At most `limit` items have jobs at once.
    """

    stage: StagePlan
    over: str | None = None
    limit: int = DEFAULT_MAP_LIMIT

    @property
    def name(self) -> str:
        """The name of the mapped stage."""
        return self.stage.name


NodePlan: TypeAlias = StagePlan | MapPlan


@attrs.frozen(kw_only=True)
class Group:
    """Nodes that are done at the same time, all with what came in.

    What goes on is the one node's output or, if `parallel`, the list of all outputs in the order of the nodes.
    """

    nodes: tuple[NodePlan, ...]
    parallel: bool = False


@attrs.frozen(kw_only=True)
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
            "groups": [
                {"parallel": group.parallel, "nodes": [_node_data(node) for node in group.nodes]}
                for group in self.groups
            ],
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
    def limited(self) -> tuple[str, ...]:
        """The names of the stages of which only so many may be under way."""
        return tuple(name for name, node in self.nodes.items() if stage_of(node).max_concurrency is not None)

    @property
    def definition(self) -> str:
        """How jobs name the code that they need: `<workflow>@<version>`."""
        return f"{self.workflow}@{self.version}"

    def node(self, name: str) -> NodePlan:
        """Return the node of this name; KeyError if the plan has none."""
        return self.nodes[name]


def plan_from_json(text: str) -> Plan:
    """Return the plan whose `to_json` this is."""
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
            )
            for group in groups
        ),
    )


def stage_of(node: NodePlan) -> StagePlan:
    """Return the stage that a node runs."""
    return node.stage if isinstance(node, MapPlan) else node


_SAYS_NOTHING: Final = StagePlan(name="")


def _node_data(node: NodePlan) -> dict[str, object]:
    plan = stage_of(node)
    stage = {
        name: value
        for name, value in attrs.asdict(plan).items()
        if name in _ALWAYS_STORED or value != getattr(_SAYS_NOTHING, name)
    }
    if isinstance(node, MapPlan):
        return {"kind": "map", "stage": stage, "over": node.over, "limit": node.limit}
    return {"kind": "stage", "stage": stage}


def _node_from(data: dict[str, object]) -> NodePlan:
    fields = dict(cast("dict[str, object]", data["stage"]))
    retry = _policy_from(fields.pop("retry"))
    rules = tuple(map(_rule_from, cast("list[dict[str, object]]", fields.pop("retry_rules", []))))
    stage = StagePlan(retry=retry, retry_rules=rules, **cast("dict[str, str]", fields))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    if data["kind"] == "map":
        return MapPlan(stage=stage, over=cast("str | None", data["over"]), limit=cast("int", data["limit"]))
    return stage


def _policy_from(data: object) -> RetryPolicy:
    return RetryPolicy(**cast("dict[str, int]", data))


def _rule_from(data: dict[str, object]) -> RetryRule:
    return RetryRule(error=cast("str", data["error"]), policy=_policy_from(data["policy"]))
