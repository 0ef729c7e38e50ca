"""Retry policies of tasks as remote workers see them: error classes by their names.

A worker reports what was raised, and which of these classes it is. Whether and when there is another attempt is decided
in the kernel (kernel/rules/retries.py), by the policy that the name stands for.
"""

from collections.abc import Sequence
from typing import Any, Final

import attrs

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import policy_from, retry_rules, rule_name
from holdfast.kernel.authoring.steps import StepStage
from holdfast.kernel.pipelines.plan import Plan, RetryPolicy, RetryRule, StagePlan, stage_of
from holdfast.ports.records.job import ATTEMPTS_UNLIMITED


@attrs.frozen(kw_only=True)
class NamedPolicy:
    """A retry policy whose error classes are names."""

    usual: RetryPolicy = attrs.field(factory=RetryPolicy)
    """The policy for errors without a rule."""
    rules: tuple[RetryRule, ...] = ()
    """The policies for some errors."""
    give_up_on: tuple[str, ...] = ()
    """The names of the errors that are final."""

    def rule(self, matched: str) -> int | None:
        """Return the index of the rule for a class; None if it has none."""
        return next((index for index, rule in enumerate(self.rules) if rule.error == matched), None)

    def policy(self, matched: str) -> RetryPolicy | None:
        """Return the policy that an error of this class falls under; None if it is final."""
        if matched in self.give_up_on:
            return None
        rule = self.rule(matched)
        return self.usual if rule is None else self.rules[rule].policy


def policy_of_stage(stage: StagePlan) -> NamedPolicy:
    """Return the policy of a remote stage, which is in its plan."""
    given_up = () if stage.remote is None else stage.remote.give_up_on
    return NamedPolicy(usual=stage.retry, rules=stage.retry_rules, give_up_on=given_up)


def policy_of_step(core: Core, definition: str, plan: Plan) -> NamedPolicy | None:
    """Return the policy of a queued step: its own, or else the default of its run. None without the step's code here.

    How many attempts there are at most is in the job in any case.
    """
    stage: Any = core.registry.step(definition)
    if not isinstance(stage, StepStage):
        return None
    own: Retry | None = stage.step.retry
    if own is not None:
        return _named(own)
    steps = None if plan.function is None else stage_of(plan.node(plan.function)).steps
    if steps is None:
        return NamedPolicy()
    given_up = () if core.registry.retry is None else _names(core.registry.retry.give_up_on)
    return NamedPolicy(usual=steps.retry, rules=steps.retry_rules, give_up_on=given_up)


UNKNOWN: Final = NamedPolicy(usual=RetryPolicy(attempts=ATTEMPTS_UNLIMITED))
"""The policy of a step whose code the server lacks: the default waits, as often as the job allows."""


def _named(retry: Retry) -> NamedPolicy:
    return NamedPolicy(
        usual=policy_from(retry), rules=retry_rules(retry), give_up_on=_names(retry.give_up_on)
    )


def _names(classes: Sequence[type[Exception]]) -> tuple[str, ...]:
    return tuple(map(rule_name, classes))
