"""Planted bugs in the progress of a run through its plan: commits, counters, successors."""

from typing import Final

from tests.mutants.mutant import Edit, Mutant

PROGRESS: Final = (
    Mutant(
        name="advance-in-another-transaction",
        breaks="that a stage is done is stored, and what follows from it waits for another transaction",
        caught_by=("S4", "S7"),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "        after = item_ended(draft, plan, job, evolve(counters, done=counters.done + 1), row)\n"
                "    _go_on(draft, plan, progress.with_node(job.node, after))\n",
                "        after = item_ended(draft, plan, job, evolve(counters, done=counters.done + 1), row)\n"
                "    draft.keep_progress(progress.with_node(job.node, after).to_json())\n",
            ),
        ),
    ),
    Mutant(
        name="batch-blind-to-itself",
        breaks="a command is decided without what those before it in the same transaction have changed",
        caught_by=("O1", "S7", "S4", "crashed"),
        edits=(Edit("kernel/dispatch/kernel.py", "        state.apply(made)\n", ""),),
    ),
    Mutant(
        name="join-by-siblings",
        breaks="a map counts as over when none of its items has a job, instead of by its counters",
        caught_by=("S4", "S7"),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "is_over = counters.done == counters.total",
                "is_over = counters.ended == counters.next",
            ),
        ),
    ),
    Mutant(
        name="outputs-out-of-order",
        breaks="stages side by side give what they gave in the wrong order",
        caught_by=("S4",),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "    for node in group.nodes:\n        if node.name not in progress.nodes:",
                "    for node in reversed(group.nodes):\n        if node.name not in progress.nodes:",
            ),
        ),
    ),
    Mutant(
        name="item-opened-twice",
        breaks="an item of a map gets a job for the second time when others are done",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "evolve(counters, next=max(upto, counters.next))",
                "evolve(counters, next=max(upto - 1, counters.next))",
            ),
        ),
    ),
    Mutant(
        name="last-item-forgotten",
        breaks="the last item of a map never gets a job",
        caught_by=("S7",),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "upto = min(counters.total, counters.ended + node.limit)",
                "upto = min(counters.total - 1, counters.ended + node.limit)",
            ),
        ),
    ),
    Mutant(
        name="lost-item-counted-twice",
        breaks="an item that may be lost counts as two when it is",
        caught_by=("S4", "S7"),
        edits=(
            Edit(
                "kernel/runs/plan_interpreter.py",
                "evolve(counters, failed=counters.failed + 1)",
                "evolve(counters, failed=counters.failed + 2)",
            ),
        ),
    ),
    Mutant(
        name="handed-on-again",
        breaks="a check that is lost with its worker hands the work on again instead of asking about it",
        caught_by=("S1", "S7"),
        edits=(
            Edit(
                "kernel/rules/sessions.py",
                "    draft.reschedule_job(lost, now)\n",
                "    kind = JobKind.STAGE if job.kind is JobKind.POLL else job.kind\n"
                "    draft.reschedule_job(evolve(lost, kind=kind), now)\n",
            ),
        ),
    ),
    Mutant(
        name="wake-lost",
        breaks="a stage that is woken while its body runs is checked as late as if nobody had",
        caught_by=("T3",),
        edits=(
            Edit(
                "kernel/rules/external_work.py",
                "until = now if job.wake_at is not None else _next(now + outcome.check_after, outcome.give_up_at)",
                "until = _next(now + outcome.check_after, outcome.give_up_at)",
            ),
        ),
    ),
    Mutant(
        name="never-given-up",
        breaks="external work is asked about for ever, unless asking fails",
        caught_by=("T3", "L1"),
        edits=(
            Edit(
                "kernel/rules/external_work.py",
                "if job.give_up_at is not None and now >= job.give_up_at:",
                "if job.give_up_at is not None and failure is not None and now >= job.give_up_at:",
            ),
        ),
    ),
    Mutant(
        name="newest-code-for-all",
        breaks="a run goes on by the plan of the newest code, and not by the one with which it was created",
        caught_by=("S4", "S7", "S8", "S9", "crashed"),
        edits=(
            Edit(
                "kernel/state.py",
                "        return self.plan_named(run.plan)\n",
                "        return self.workflows.get((run.workflow, None)) or self.plan_named(run.plan)\n",
            ),
        ),
    ),
    Mutant(
        name="reply-after-the-effect",
        breaks="what was answered to an idempotency key is stored after what was done, in a transaction of its own",
        caught_by=("I1",),
        edits=(
            Edit(
                "kernel/dispatch/kernel.py",
                "        if command.idempotency_key is not None:\n"
                "            made = (*made, StoreReply(reply_of(command, decision.reply, now)))\n",
                "",
            ),
            Edit(
                "kernel/dispatch/kernel.py",
                "        if plans:\n            # Only plans",
                "        keyed = {\n"
                "            (one.namespace, one.idempotency_key): (one, answer)\n"
                "            for one, answer in zip(batch, answers, strict=True)\n"
                "            if one.idempotency_key and not isinstance(answer, CommandError)\n"
                "        }\n"
                "\n"
                "        def remember(tx: Transaction) -> None:\n"
                "            now = micros(self.clock.now())\n"
                "            known = {(reply.namespace, reply.key) for reply in tx.replies(sorted(keyed))}\n"
                "            tx.apply([StoreReply(reply_of(*keyed[key], now)) for key in keyed if key not in known])\n"
                "\n"
                "        if keyed:\n"
                "            self.persistence.transact(remember)\n"
                "        if plans:\n            # Only plans",
            ),
        ),
    ),
    Mutant(
        name="step-with-a-refused-result-not-taken-back",
        breaks="a step that was done and gave what the store refuses counts as one that was not done",
        caught_by=("L1",),
        edits=(
            Edit(
                "kernel/functions/sagas.py",
                "_UNKNOWN = (TimeoutError, StepLostError, StepResultError)",
                "_UNKNOWN = (TimeoutError, StepLostError)",
            ),
        ),
    ),
    Mutant(
        name="lost-claim-forgotten",
        breaks="a claim whose answer was lost is taken for one that was not made",
        caught_by=("L1",),
        edits=(
            Edit(
                "hosts/worker/store_calls.py",
                "            except STORE_ERRORS:\n                self._is_in_doubt = True\n",
                "            except STORE_ERRORS:\n",
            ),
        ),
    ),
    Mutant(
        name="lost-take-forgotten",
        breaks="the next job, taken with a settle whose answer was lost, is taken for one that nobody has",
        caught_by=("L1",),
        edits=(
            Edit(
                "hosts/worker/store_calls.py",
                "                self._is_in_doubt = self._is_in_doubt or any(action.lease_next)\n",
                "",
            ),
        ),
    ),
    Mutant(
        name="blob-not-stored",
        breaks="a value counts as put away though the blob store did not answer",
        caught_by=("B1",),
        edits=(
            Edit(
                "hosts/wiring/payloads.py",
                "        self.blobs.put(key, data)\n",
                "        try:\n"
                "            self.blobs.put(key, data)\n"
                "        except Exception:\n"
                "            pass\n",
            ),
        ),
    ),
)
