"""Limits and queues, read and changed while the system runs, for synchronous code."""

from datetime import timedelta

from holdfast.hosts.client.client import Client
from holdfast.hosts.inspection.limits import LimitInfo, limit_info, limit_infos
from holdfast.kernel.authoring.options import Rate
from holdfast.kernel.commands import LimitClear, LimitSet
from holdfast.kernel.commands.limits import SLOTS_MAX
from holdfast.kernel.limits.limit_names import LimitKind, ParsedLimit, parsed_limit
from holdfast.kernel.pipelines.plan import stage_of
from holdfast.ports.actors import Actor
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.structs import evolve
from holdfast.ports.validation import TEXT, TRUTH, an, check, integer


class SyncLimits:
    """The limits and queues of a namespace, for synchronous code. `engine.sync.limits` returns it.

    A change holds at once, on all hosts and without a deploy, also for what waits already. It interrupts nothing.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._core = client.core

    def set(
        self,
        name: str,
        /,
        *,
        slots: int | None = None,
        rate: Rate | None = None,
        paused: bool | None = None,
        reason: str = "",
        actor: Actor | None = None,
    ) -> LimitInfo:
        """Set a limit in place of that of the code, or pause or unpause a queue, and return it as it is now.

        What is not given stays as it was set before.

        Args:
            name: `run:<concurrency key>`, `run-rate:<name>`, `stage:<workflow>/<stage>`, `step:<step>`, `slots:<name>`,
                `rate:<name>` or `queue:<queue>`. If a limit is counted by an attribute (`by`), `/<text>` after its name
                sets it for one text only.
            slots: How many may be under way; 0 admits nothing more. Of `run:`, `stage:`, `step:` and `slots:`.
            rate: How many may start in a period: `Rate(300, per=timedelta(minutes=1))`, without `name` and `by`. Of
                `run-rate:`, `stage:`, `step:` and `rate:`.
            paused: Whether nothing is claimed from the queue. What runs goes on. Of queues only.
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidArgumentError: An argument has the wrong type, or this engine's code has no such limit.
            InvalidCommandError: The name is of no known kind, or its kind does not have the value.
        """
        check("limits.set", TEXT, name=name, reason=reason)
        check("limits.set", integer(0, SLOTS_MAX).or_none, slots=slots)
        check("limits.set", an("a Rate(...)", Rate).or_none, rate=rate)
        check("limits.set", TRUTH.or_none, paused=paused)
        if rate is not None and (rate.name is not None or rate.by is not None):
            raise InvalidArgumentError(
                "rate",
                "the rate has a name or `by`: which rate is set is said by the name of the limit, such as rate:model, "
                "or rate:model/acme for one text of the attribute; write Rate(limit, per=...)",
            )
        limit = parsed_limit(name)
        self._check_code(limit, slots=slots, rate=rate)
        command = LimitSet(
            namespace=self._core.namespace,
            name=name,
            slots=slots,
            rate_limit=None if rate is None else rate.limit,
            rate_period=None if rate is None else rate.per // timedelta(microseconds=1),
            paused=paused,
            reason=reason,
            actor=actor,
        )
        self._carry_out(command)
        return limit_info(self._core, limit)

    def clear(self, name: str, /, *, reason: str = "", actor: Actor | None = None) -> LimitInfo:
        """Clear what was set, so that the code decides again and a queue is unpaused. Return it as it is now.

        Args:
            name: As for `set`.
            reason: Why, for people.
            actor: Who issues the command; the engine's actor if omitted (see `Engine.acting_as`).

        Raises:
            InvalidCommandError: The name is of no known kind.
        """
        check("limits.clear", TEXT, name=name, reason=reason)
        limit = parsed_limit(name)
        self._carry_out(LimitClear(namespace=self._core.namespace, name=name, reason=reason, actor=actor))
        return limit_info(self._core, limit)

    def get(self, name: str, /) -> LimitInfo:
        """Return one limit or queue as it is now, whether or not it was ever set.

        Args:
            name: As for `set`.

        Raises:
            InvalidCommandError: The name is of no known kind.
        """
        check("limits.get", TEXT, name=name)
        return limit_info(self._core, parsed_limit(name))

    def list(self) -> tuple[LimitInfo, ...]:
        """Return the limits and queues that are set, and the limits for which something waits, by name.

        Of the latter, the first 1,000 keys of runs, and of stages and steps, are listed.
        """
        self._core.connect()
        return limit_infos(self._core)

    def _carry_out(self, command: LimitSet | LimitClear) -> None:
        reply = self._client.dispatch(command)
        while reply.next is not None:
            reply = self._client.dispatch(evolve(command, after=reply.next))

    def _check_code(self, limit: ParsedLimit, *, slots: int | None, rate: Rate | None) -> None:
        """Raise InvalidArgumentError if this engine's code has the stage, but not the limit that is to be set."""
        if limit.kind is not LimitKind.STAGE:
            return
        workflow, stage = limit.names
        plans = [plan for plan in self._core.registry.plans if plan.workflow == workflow]
        if not plans:
            return
        nodes = [stage_of(plan.nodes[stage]) for plan in plans if stage in plan.nodes]
        if not nodes:
            raise InvalidArgumentError(
                "name",
                f"{limit.name}: the workflow {workflow!r} has no stage {stage!r}; it has "
                f"{', '.join(sorted({repr(name) for plan in plans for name in plan.nodes})) or 'none'}",
            )
        if slots is not None and all(node.max_concurrency is None for node in nodes):
            raise InvalidArgumentError(
                "name",
                f"{limit.name} has no slots in this code: a limit that is set replaces one of the code, so give the "
                "stage max_concurrency=..., or limit runs by `concurrency`",
            )
        if rate is not None and all(node.rate is None or node.rate.name is not None for node in nodes):
            named = next((node.rate.name for node in nodes if node.rate is not None), None)
            instead = "give the stage rate_limit=Rate(...)" if named is None else f"set rate:{named}"
            raise InvalidArgumentError(
                "name",
                f"{limit.name} has no rate of its own in this code, and a rate that is set replaces one of the code: "
                f"{instead}",
            )
