"""Planted bugs in lost attempts: how they are counted, retried and given up."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

LOST_ATTEMPTS: Final = (
    Mutant(
        name="suspects-together",
        breaks="a claim takes what was lost beside a suspect that it has just taken",
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
        name="suspect-beside-what-is-held",
        breaks="a worker claims without a thought of what it holds",
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
        name="suspect-too-late",
        breaks="a job is no suspect yet when it was lost twice",
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
        name="stage-lost-as-often-as-tried",
        breaks="a stage is given up when it was lost as often as it may be tried, whatever was beside it",
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
        name="queued-step-lost-as-often-as-tried",
        breaks="a step in a queue is given up when it was lost as often as it may be tried",
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
        name="once-is-twice",
        breaks="what may be tried once begins again when its worker was lost",
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
        name="step-given-up-in-company",
        breaks="a step is given up that was lost beside others that were lost before",
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
        name="step-given-up-after-its-tries",
        breaks="a step is given up when it was lost as often as it may be tried",
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
        name="loss-of-what-had-not-begun",
        breaks="a step that waits for its turn counts as lost with what had its turn",
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
        name="loss-uses-up-a-try",
        breaks="a step that was lost has a try less for what it raises itself",
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
