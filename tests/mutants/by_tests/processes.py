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
        "sqlite-open-during-fork",
        "SQLite's connections are open while the process forks.",
        "adapters/sql/sqlite/connection.py",
        "            self._lock.release()\n            return False\n        self._let_go()\n        return True\n",
        "            self._lock.release()\n            return False\n        return True\n",
        "tests/unit/ports/test_process_forks.py",
        FORKS,
    ),
    one_edit(
        "fork-inherits-start-queue",
        "A forked process inherits its parent's queue of starts, with its lock and its pending starts.",
        "hosts/client/client.py",
        "self._batcher = core.own(GroupCommit(self._dispatch_many))",
        "self._batcher = GroupCommit(self._dispatch_many)",
        f"{FORKS} -k waits_for_no_start",
    ),
    one_edit(
        "fork-inherits-listener",
        "A forked process waits for its parent's listener thread.",
        "hosts/wiring/services.py",
        '*self._parts, self._wake_ups, self.__dict__.get("listener"))',
        "*self._parts, self._wake_ups)",
        FORKS,
    ),
    one_edit(
        "closed-engine-reconnects",
        "A closed engine reconnects when it is used.",
        "hosts/wiring/lifecycle.py",
        "        if self._is_closed:\n            raise EngineClosedError\n",
        "",
        CLOSED,
    ),
    one_edit(
        "reopened-engine-keeps-transport-closed",
        "A reopened engine leaves its transport closed.",
        "hosts/wiring/services.py",
        "        transport.reopen()\n",
        "",
        CLOSED,
    ),
    one_edit(
        "inner-block-closes-engine",
        "The inner one of two nested `with` blocks closes the engine.",
        "hosts/wiring/lifecycle.py",
        "            self._is_to_close = not self._opened\n",
        "            self._is_to_close = True\n",
        CLOSED,
    ),
    one_edit(
        "engine-closed-under-its-worker",
        "An engine is closed while one of its workers runs.",
        "hosts/wiring/lifecycle.py",
        "            if not self._is_to_close or self._loops:\n",
        "            if not self._is_to_close:\n",
        CLOSED,
    ),
    one_edit(
        "engine-uses-anyio-threads",
        "The engine's calls use up the application's anyio threads.",
        "hosts/execution/threads.py",
        "            made.append(await result_in_thread(partial(call, *arguments)))\n",
        "            made.append(await anyio.to_thread.run_sync(partial(call, *arguments)))\n",
        CLOSED,
    ),
    one_edit(
        "draining-worker-starts-steps",
        "A draining worker starts further steps of its functions.",
        "hosts/functions/driver.py",
        "        if self._parts.is_leaving():\n            return True\n",
        "",
        "tests/unit/hosts/worker/test_worker.py",
    ),
    one_edit(
        "wrapped-function-decides-async",
        "Whether a body is async is read from the function that its decorator wraps.",
        "kernel/authoring/body_types.py",
        "    return inspect.iscoroutinefunction(body) or (\n",
        "    return inspect.iscoroutinefunction(inspect.unwrap(body)) or (\n",
        "tests/unit/kernel/authoring/test_stages.py",
        DECORATED,
    ),
    one_edit(
        "awaitable-stored-as-result",
        "An awaitable that a plain function returns counts as its result and is not awaited.",
        "hosts/functions/step_runner.py",
        "    if not inspect.isawaitable(value):\n        return value\n",
        "    if value is not None:\n        return value\n",
        DECORATED,
    ),
    one_edit(
        "context-variables-lost",
        "Steps do not see the context variables of their function.",
        "hosts/functions/step_runner.py",
        "            variable.set(value)\n",
        "            variable.get(value)\n",
        DECORATED,
    ),
    one_edit(
        "scopes-cancelled-by-address",
        "anyio cancels the tasks of nested scopes in the order of their addresses.",
        "kernel/functions/loop.py",
        "sorted(cancels, key=lambda one: one[0].number)",
        "sorted(cancels, key=lambda one: id(one[0]) * 7919 % 1000)",
        ANYIO,
    ),
    one_edit(
        "shared-lock-accepted",
        "A function that uses a lock from outside itself is accepted.",
        "hosts/wiring/registry.py",
        "                    _check_shared(stage.workflow)\n",
        "",
        SHARED,
    ),
    one_edit(
        "unawaited-failure-not-reported",
        "A task that failed and was never awaited is not reported.",
        "kernel/functions/machine.py",
        "                self.failures = failures\n",
        "                self.failures = ()\n",
        SHARED,
    ),
    one_edit(
        "own-cancellation-loses-message",
        "A function that cancels itself loses the message of its cancellation.",
        "kernel/functions/machine.py",
        "            return FunctionFailed(CancelledError(*self._cancelled_with))\n",
        "            return FunctionFailed(CancelledError())\n",
        "tests/unit/kernel/functions/test_golden.py",
        "tests/integration/hosts/test_sagas.py",
    ),
    one_edit(
        "doctor-ignores-namespace",
        "The doctor checks and repairs the runs of all namespaces.",
        "hosts/maintenance/doctor/doctor.py",
        "        return self._namespace in (None, namespace)\n",
        '        return namespace != ""\n',
        "tests/integration/doctor/test_doctor.py",
    ),
    one_edit(
        "count-omits-zeros",
        "A count omits statuses that no run has.",
        "hosts/client/sync_engine.py",
        "status in (which.statuses or RunStatus)",
        "status in (which.statuses or found)",
        "tests/integration/hosts/test_engine.py",
    ),
)
