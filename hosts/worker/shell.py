"""The part of a worker between its state machine and the store that every host shares.

A host takes actions from it, carries them out in threads and tasks of its own, and passes the results back. So the
host on an event loop and the simulator, which has neither loop nor threads, run the same worker
(docs/decisions/0017). Not thread-safe, except for `inputs_of_hints` and the callables that `call` returns: a single
task owns it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from holdfast.hosts.execution.attempt_runner import AttemptRunner
from holdfast.hosts.execution.bodies import Body, Substitute, unchanged
from holdfast.hosts.execution.function_cache import FunctionCache
from holdfast.hosts.functions.function_runners import FUNCTION_RUNNERS
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.wiring.worker_about import worker_about
from holdfast.hosts.worker import machine_protocol as p
from holdfast.hosts.worker.machine import Phase, WorkerMachine
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.store_calls import StoreCalls
from holdfast.kernel.commands import Attempt, FollowUp, JobSettle
from holdfast.ports.events import EventSink

CallResult: TypeAlias = tuple[p.Input | None, Sequence[Body]]
"""The input for the machine, if any, and the bodies that the call has prepared."""

_NO_BODIES: Final[Sequence[Body]] = ()


WAKE_POLLS: Final = 1.8
"""Poll intervals after which a claim also wakes due sleepers: a little less than between idle claims."""


class WorkerShell:
    """A worker machine, its calls to the store, and the bodies that are ready, running, or ended but unsettled."""

    def __init__(
        self,
        core: Core,
        settings: Settings,
        *,
        lease: float,
        sinks: Mapping[str, EventSink],
        substitute: Substitute = unchanged,
    ) -> None:
        self._core = core
        self.machine = WorkerMachine(attrs.evolve(settings, sinks=tuple(sinks)))
        self._cache = core.own(FunctionCache(settings.function_cache))
        self.attempts = AttemptRunner(
            core,
            FUNCTION_RUNNERS,
            substitute=substitute,
            driving=lambda parts: attrs.evolve(parts, cache=self._cache, is_leaving=self._is_leaving),
        )
        self.calls = StoreCalls(
            core,
            self.attempts,
            lease=lease,
            sinks=sinks,
            retention=settings.retention,
            cache=self._cache,
            wake_every=WAKE_POLLS * settings.poll_interval,
            about=lambda: worker_about(
                core,
                settings.name,
                queues=settings.queues,
                concurrency=settings.concurrency,
                limits=settings.limits,
            ),
        )
        self._inputs: list[p.Input] = []
        self._ready: dict[Attempt, Body] = {}
        self._ended: dict[tuple[str, int], Body] = {}

    @property
    def has_inputs(self) -> bool:
        """Whether inputs are queued for the machine."""
        return bool(self._inputs)

    def post(self, happened: p.Input) -> None:
        """Queue an input for the next step."""
        self._inputs.append(happened)

    def inputs_of_hints(
        self, running: Iterable[Attempt], ended: frozenset[str], grew: frozenset[str]
    ) -> Sequence[p.Input]:
        """Notify drivers of new rows; return the machine's inputs for hints about runs. Safe in any thread."""
        # Most hints are about runs of other workers: these must not cost this worker's loop anything.
        here = {attempt.run for attempt in running}
        inputs: list[p.Input] = []
        if not ended.isdisjoint(here):
            inputs.append(p.RunsEnded(ended))
        if not grew.isdisjoint(here):
            self._core.run_notifier.notify(grew)
            inputs.append(p.HistoriesGrew())
        return inputs

    def step(self, now: float) -> list[p.Action]:
        """Pass the queued inputs to the machine; return its actions."""
        inputs, self._inputs = self._inputs, []
        return self.machine.step(now, inputs)

    def begin(self, attempt: Attempt) -> Body:
        """Return the prepared body of an attempt that starts now."""
        body = self._ready.pop(attempt)
        self.calls.counts.started += 1
        self.calls.runtimes[attempt] = body.runtime
        return body

    def _is_leaving(self) -> bool:
        """Whether the worker is shutting down, so that nothing new may start."""
        return self.machine.phase is not Phase.RUNNING

    def end(self, body: Body, settle: JobSettle | None, *, cancelled: bool) -> None:
        """Report that a body has ended; without a `settle` if it was cancelled or abandoned."""
        del self.calls.runtimes[body.attempt]
        if settle is not None and not cancelled:
            self._ended[_key(settle)] = body
        self.post(p.BodyEnded(body.attempt, settle))

    def cancel(self, attempt: Attempt) -> bool:
        """Ask the body of an attempt to stop; return whether it is still running."""
        self._ended.pop(_key(attempt), None)
        runtime = self.calls.runtimes.get(attempt)
        if runtime is None:
            return False
        runtime.cancel()
        return True

    def call(self, action: p.Action) -> Callable[[], CallResult] | None:
        """Return the store call of an action, safe in any thread; None for actions without one."""
        calls = self.calls
        match action:
            case p.OpenSession():
                return lambda: (calls.open_session(), _NO_BODIES)
            case p.Claim():
                return lambda: calls.claim(action)
            case p.Settle(settles):
                ended = {key: self._ended[key] for key in map(_key, settles) if key in self._ended}
                return lambda: calls.settle(action, ended)
            case p.Heartbeat(attempts):
                return lambda: (calls.heartbeat(action, attempts), _NO_BODIES)
            case p.Sweep():
                return lambda: (calls.sweep(action), _NO_BODIES)
            case FollowUp():
                return lambda: (calls.follow_up(action), _NO_BODIES)
            case p.WakeDue():
                return lambda: (calls.wake_due(action), _NO_BODIES)
            case p.FindEvents():
                return lambda: (calls.look(action), _NO_BODIES)
            case p.Flush():
                return lambda: (calls.flush(action), _NO_BODIES)
            case p.Release(attempts):
                return lambda: _released(calls, attempts)
            case p.Start() | p.Cancel() | p.Finish():
                return None

    def answer(self, action: p.Action, result: CallResult) -> None:
        """Process the result of the call of an action."""
        happened, bodies = result
        self._ready.update((body.attempt, body) for body in bodies)
        if isinstance(action, p.Settle) and isinstance(happened, p.Settled):
            for settle in action.settles:
                self._ended.pop(_key(settle), None)
        if happened is not None:
            self.post(happened)

    def close(self) -> None:
        """Evict the cached functions of a worker that ends. In any thread."""
        self._cache.close()
        self._core.disown(self._cache)

    def last(self, now: float) -> tuple[tuple[JobSettle, ...], tuple[Attempt, ...]]:
        """Return the results to settle and the attempts to release for a worker that ends now.

        Inputs that the machine has not processed yet are included: bodies that ended, a claim that was answered.
        """
        actions = self.step(now)
        settles, attempts = self.machine.leave()
        released = (action.attempts for action in actions if isinstance(action, p.Release))
        return settles, (*attempts, *(attempt for some in released for attempt in some))


def _released(calls: StoreCalls, attempts: Sequence[Attempt]) -> CallResult:
    calls.release(attempts)
    return None, _NO_BODIES


def _key(one: JobSettle | Attempt) -> tuple[str, int]:
    return one.job, one.epoch
