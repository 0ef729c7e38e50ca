"""Planted bugs in state shared by processes, threads and event loops: forks, closed engines, drains."""

from typing import Final

from tests.mutants.by_tests.edits import one_edit
from tests.mutants.mutant import Mutant

FORKS: Final = "tests/integration/hosts/test_forked_engines.py"
CLOSED: Final = "tests/integration/hosts/test_closed_engines.py"
DECORATED: Final = "tests/integration/hosts/test_decorated_bodies.py"
SHARED: Final = "tests/integration/hosts/test_shared_primitives.py"
ANYIO: Final = "tests/integration/hosts/test_anyio_functions.py"

PROCESSES: Final[tuple[Mutant, ...]] = (
    one_edit(
        "sqlite-stays-open-in-a-fork",
        "the connections of SQLite are open while a process forks",
        "adapters/sql/sqlite/connection.py",
        "            self._lock.release()\n            return False\n        self._let_go()\n        return True\n",
        "            self._lock.release()\n            return False\n        return True\n",
        "tests/unit/ports/test_process_forks.py",
        FORKS,
    ),
    one_edit(
        "fork-waits-for-its-parent",
        "a forked child keeps its parent's queue of starts, with its lock and what is under way in it",
        "hosts/client/client.py",
        "self._batcher = core.own(GroupCommit(self._dispatch_many))",
        "self._batcher = GroupCommit(self._dispatch_many)",
        f"{FORKS} -k waits_for_no_start",
    ),
    one_edit(
        "fork-keeps-its-parents-listener",
        "a forked child waits for the thread with which its parent hears of ends",
        "hosts/wiring/services.py",
        '*self._parts, self._wake_ups, self.__dict__.get("listener"))',
        "*self._parts, self._wake_ups)",
        FORKS,
    ),
    one_edit(
        "closed-engine-answers",
        "a closed engine opens its connections again for whatever uses it",
        "hosts/wiring/lifecycle.py",
        "        if self._is_closed:\n            raise EngineClosedError\n",
        "",
        CLOSED,
    ),
    one_edit(
        "reopened-engine-is-deaf",
        "an engine that is opened again leaves its transport closed",
        "hosts/wiring/services.py",
        "        transport.reopen()\n",
        "",
        CLOSED,
    ),
    one_edit(
        "inner-block-closes",
        "the first of two nested blocks to end closes the engine",
        "hosts/wiring/lifecycle.py",
        "            self._is_to_close = not self._opened\n",
        "            self._is_to_close = True\n",
        CLOSED,
    ),
    one_edit(
        "closed-under-its-worker",
        "an engine is closed while a worker of it runs",
        "hosts/wiring/lifecycle.py",
        "            if not self._is_to_close or self._loops:\n",
        "            if not self._is_to_close:\n",
        CLOSED,
    ),
    one_edit(
        "engine-in-anyios-threads",
        "the engine's calls take the threads of the application",
        "hosts/execution/threads.py",
        "            made.append(await result_in_thread(partial(call, *arguments)))\n",
        "            made.append(await anyio.to_thread.run_sync(partial(call, *arguments)))\n",
        CLOSED,
    ),
    one_edit(
        "draining-begins-steps",
        "a worker that drains begins further steps of its functions",
        "hosts/functions/driver.py",
        "        if self._parts.is_leaving():\n            return True\n",
        "",
        "tests/unit/hosts/worker/test_worker.py",
    ),
    one_edit(
        "wrapped-is-asked",
        "what a decorator has wrapped is asked whether it is async",
        "kernel/authoring/body_types.py",
        "    return inspect.iscoroutinefunction(body) or (\n",
        "    return inspect.iscoroutinefunction(inspect.unwrap(body)) or (\n",
        "tests/unit/kernel/authoring/test_stages.py",
        DECORATED,
    ),
    one_edit(
        "awaitable-is-a-result",
        "what a plain function gives that is to be awaited is taken for its result",
        "hosts/functions/step_runner.py",
        "    if not inspect.isawaitable(value):\n        return value\n",
        "    if value is not None:\n        return value\n",
        DECORATED,
    ),
    one_edit(
        "context-stays-behind",
        "steps do not see the context variables of their function",
        "hosts/functions/step_runner.py",
        "            variable.set(value)\n",
        "            variable.get(value)\n",
        DECORATED,
    ),
    one_edit(
        "scopes-by-address",
        "anyio cancels the tasks of nested scopes in the order of addresses",
        "kernel/functions/loop.py",
        "sorted(cancels, key=lambda one: one[0].number)",
        "sorted(cancels, key=lambda one: id(one[0]) * 7919 % 1000)",
        ANYIO,
    ),
    one_edit(
        "shared-lock-is-taken",
        "a function that uses a lock made outside of it is accepted",
        "hosts/wiring/registry.py",
        "                    _check_shared(stage.workflow)\n",
        "",
        SHARED,
    ),
    one_edit(
        "forgotten-failure",
        "a task that failed and was never awaited is told of nowhere",
        "kernel/functions/machine.py",
        "                self.failures = failures\n",
        "                self.failures = ()\n",
        SHARED,
    ),
    one_edit(
        "own-cancellation-has-no-reason",
        "a function that ends as cancelled by itself loses its message",
        "kernel/functions/machine.py",
        "            return FunctionFailed(CancelledError(*self._cancelled_with))\n",
        "            return FunctionFailed(CancelledError())\n",
        "tests/unit/kernel/functions/test_golden.py",
        "tests/integration/hosts/test_sagas.py",
    ),
    one_edit(
        "doctor-looks-everywhere",
        "doctor looks at the runs of all namespaces, and repairs them",
        "hosts/maintenance/doctor/doctor.py",
        "        return self._namespace in (None, namespace)\n",
        '        return namespace != ""\n',
        "tests/integration/doctor/test_doctor.py",
    ),
    one_edit(
        "count-leaves-out-none",
        "statuses of which there is no run are left out of a count",
        "hosts/client/sync_engine.py",
        "status in (which.statuses or RunStatus)",
        "status in (which.statuses or found)",
        "tests/integration/hosts/test_engine.py",
    ),
)
