"""Planted bugs in lost attempts: how they are counted, retried and given up."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

LOST_ATTEMPTS: Final = (
    Mutant(
        name="quarantine-ignored-within-claim",
        breaks="A claim that takes a quarantined job also takes jobs that were lost together with it.",
        caught_by=("S12",),
        edits=(
            Edit(
                "kernel/rules/claims.py",
                "            pass_over = attempts[-1].pass_over\n",
                "            pass_over = command.pass_over\n",
            ),
        ),
    ),
    Mutant(
        name="quarantine-ignores-held-jobs",
        breaks="A worker's claim does not respect the quarantine of the jobs that it already holds.",
        caught_by=("S12",),
        edits=(
            Edit(
                "hosts/worker/capacity.py",
                "combine_pass_over(self._inside.values())",
                "combine_pass_over(())",
            ),
        ),
    ),
    Mutant(
        name="quarantine-one-loss-late",
        breaks="A job is quarantined one loss too late.",
        caught_by=("S12",),
        edits=(
            Edit(
                "ports/records/job.py",
                "        return self.lost_attempts >= SUSPECT_AFTER\n",
                "        return self.lost_attempts > SUSPECT_AFTER\n",
            ),
        ),
    ),
    Mutant(
        name="stage-loss-limit-is-attempts",
        breaks="A stage fails after as many losses as it has attempts, although at least five are allowed.",
        caught_by=("S12",),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "is_given_up(lost.lost_attempts, job.max_attempts)",
                "lost.lost_attempts >= job.max_attempts",
            ),
        ),
    ),
    Mutant(
        name="queued-step-loss-limit-is-attempts",
        breaks=(
            "A queued step fails after as many losses as it has attempts, although at least five are allowed."
        ),
        caught_by=("S12",),
        edits=(
            Edit(
                "kernel/rules/retries.py",
                "        at = None if is_over else now\n",
                "        at = None if is_over or fail.lost_attempts == attempts_max else now\n",
            ),
        ),
    ),
    Mutant(
        name="single-attempt-repeated-after-loss",
        breaks="A body with a single attempt runs again after its worker was lost.",
        caught_by=("S12",),
        edits=(
            Edit(
                "ports/records/job.py",
                "    return 1 if attempts == 1 else min(max(attempts, LOSSES_MIN), LOSSES_MAX)\n",
                "    return min(max(attempts, LOSSES_MIN), LOSSES_MAX)\n",
            ),
        ),
    ),
    Mutant(
        name="step-blamed-for-shared-losses",
        breaks="Lost steps are retried together: a step fails for losses that another step caused.",
        caught_by=("S12",),
        edits=(
            Edit(
                "hosts/functions/lost_steps.py",
                "is_alone=is_alone)",
                "is_alone=True)",
            ),
            Edit(
                "hosts/functions/lost_steps.py",
                "    if not waiting or (under_way and waited < ALONE_FOR):\n        return []\n",
                "    if under_way or waiting:\n        return list(waiting)\n",
            ),
        ),
    ),
    Mutant(
        name="step-loss-limit-is-attempts",
        breaks="A step fails after as many losses as it has attempts, even if it never ran alone.",
        caught_by=("S12",),
        edits=(
            Edit(
                "kernel/rules/retries.py",
                "    return max(attempts, LOSSES_MIN) if must_succeed else losses_max(attempts)\n",
                "    return attempts\n",
            ),
            Edit(
                "kernel/rules/retries.py",
                "    return losses >= most and (alone or most == 1)\n",
                "    return losses >= most\n",
            ),
        ),
    ),
    Mutant(
        name="waiting-step-counted-as-lost",
        breaks="A lost step that has not been restarted counts as lost again when the next worker is lost.",
        caught_by=("S12",),
        edits=(
            Edit(
                "hosts/functions/lost_steps.py",
                "if not one.lost_attempts or one.is_restarted]",
                "if one is not None]",
            ),
        ),
    ),
    Mutant(
        name="loss-counts-as-failure",
        breaks="A step's lost attempts count as failures: fewer attempts are left for errors.",
        caught_by=("S8",),
        edits=(
            Edit(
                "kernel/rules/retries.py",
                "failed.attempt - fail.lost_attempts\n",
                "failed.attempt\n",
            ),
        ),
    ),
)
