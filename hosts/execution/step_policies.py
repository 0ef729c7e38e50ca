"""The retry policies of the steps of a run: a step's own, or the default that is stored with the run's plan."""

from typing import Any

from holdfast.hosts.execution.failures import retry_match, rule_for
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import policy_from
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.pipelines.plan import RetryPolicy, StepsPlan
from holdfast.ports.structs import frozen


@frozen
class StepPolicies:
    """The retry policies of the steps of one run."""

    plan: StepsPlan | None
    """The default policy as the run's plan has it; None: that of `Retry()`."""
    default: Retry | None = None
    """The default policy of this engine. Its classes decide which rule of the plan an error falls under."""

    def usual(self, step: Step[..., Any]) -> RetryPolicy:
        """Return the policy of a step for errors without a rule."""
        if step.retry is not None:
            return policy_from(step.retry)
        return RetryPolicy() if self.plan is None else self.plan.retry

    def attempts_max(self, step: Step[..., Any]) -> int:
        """Return the largest number of attempts that any rule of a step allows."""
        if step.retry is not None:
            return max(policy_from(one).attempts for one in (step.retry, *step.retry.by_error.values()))
        rules = () if self.plan is None else self.plan.retry_rules
        return max(one.attempts for one in (self.usual(step), *(rule.policy for rule in rules)))

    def policy_for(self, step: Step[..., Any], error: BaseException) -> RetryPolicy | None:
        """Return the policy that an error of a step falls under; None if the error is final."""
        if step.retry is not None:
            match = retry_match(error, step.retry)
            policy = policy_from(step.retry if match.error is None else step.retry.by_error[match.error])
            return None if match.is_final else policy
        match = retry_match(error, None if self.plan is None else self.default)
        if match.is_final or self.plan is None:
            return None if match.is_final else self.usual(step)
        rule = rule_for(match.error, self.default, self.plan.retry_rules)
        return self.plan.retry if rule is None else self.plan.retry_rules[rule].policy
