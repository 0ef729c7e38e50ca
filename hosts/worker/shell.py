"""What a worker has in hand between its machine and the store, whatever its threads and tasks are made of.

A driver asks it for actions, carries them out in threads and tasks of its own, and tells it what came of them. So the
driver on an event loop and the simulator, which has neither loop nor threads, are the same worker. Not thread-safe, but
for the calls that `call` returns: one task owns it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from holdfast.hosts.execution.prepared_attempts import Body, Parts
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.worker import machine_protocol as p
from holdfast.hosts.worker.machine import Phase, WorkerMachine
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.store_calls import StoreCalls
from holdfast.kernel.commands import Attempt, JobSettle
from holdfast.ports.events import EventSink
from holdfast.ports.records import JobKind

CallResult: TypeAlias = tuple[p.Input | None, Sequence[Body]]
"""What a call tells the machine, if anything, and the bodies that it has made ready."""

_NO_BODIES: Final[Sequence[Body]] = ()


WAKE_POLLS: Final = 1.8
"""After so many poll intervals a claim looks for sleepers, too: a little sooner than idle claims follow each other."""


class WorkerShell:
    """A machine with its calls, and the bodies that wait, run, or have ended and are not settled."""

    def __init__(
        self, core: Core, settings: Settings, *, lease: float, sinks: Mapping[str, EventSink]
    ) -> None:
        self.machine = WorkerMachine(attrs.evolve(settings, sinks=tuple(sinks)))
        self._cache = core.function_cache(settings.function_cache)
        self.calls = StoreCalls(
            core,
            lease=lease,
            sinks=sinks,
            retention=settings.retention,
            cache=self._cache,
            wake_every=WAKE_POLLS * settings.poll_interval,
        )
        self._parts: tuple[Parts, Parts] | None = None
        self._inputs: list[p.Input] = []
        self._ready: dict[Attempt, Body] = {}
        self._ended: dict[tuple[str, int], Body] = {}

    @property
    def has_inputs(self) -> bool:
        """Whether the machine is to be told something."""
        return bool(self._inputs)

    def post(self, happened: p.Input) -> None:
        """Keep what has happened until the next step."""
        self._inputs.append(happened)

    def step(self, now: float) -> list[p.Action]:
        """Tell the machine what has happened; return what it says to do now."""
        inputs, self._inputs = self._inputs, []
        return self.machine.step(now, inputs)

    def begin(self, attempt: Attempt) -> Body:
        """Return the body of an attempt that is to start now."""
        body = self._ready.pop(attempt)
        if attempt.kind is JobKind.WORKFLOW:
            body = attrs.evolve(body, parts=self._parts_of(body))
        self.calls.counts.started += 1
        self.calls.runtimes[attempt] = body.runtime
        return body

    def _parts_of(self, body: Body) -> Parts:
        """Return what its function is driven with here."""
        known = self._parts
        if known is None or known[0] is not body.parts:
            parts = attrs.evolve(body.parts, cache=self._cache, is_leaving=self._is_leaving)
            self._parts = known = body.parts, parts
        return known[1]

    def _is_leaving(self) -> bool:
        """Whether nothing more is to begin here."""
        return self.machine.phase is not Phase.RUNNING

    def end(self, body: Body, settle: JobSettle | None, *, cancelled: bool) -> None:
        """Take in that a body has ended; `settle` is None if it was given up."""
        del self.calls.runtimes[body.attempt]
        if settle is not None and not cancelled:
            self._ended[_key(settle)] = body
        self.post(p.Ended(body.attempt, settle))

    def cancel(self, attempt: Attempt) -> bool:
        """Tell the body of an attempt to stop; return whether it runs still."""
        self._ended.pop(_key(attempt), None)
        runtime = self.calls.runtimes.get(attempt)
        if runtime is None:
            return False
        runtime.cancel()
        return True

    def call(self, action: p.Action) -> Callable[[], CallResult] | None:
        """Return the call of the store that an action is, to be made in whatever thread; None if it is none."""
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
            case p.Admit():
                return lambda: (calls.admit(action), _NO_BODIES)
            case p.WakeDue():
                return lambda: (calls.wake_due(action), _NO_BODIES)
            case p.Look():
                return lambda: (calls.look(action), _NO_BODIES)
            case p.Flush():
                return lambda: (calls.flush(action), _NO_BODIES)
            case p.DeliverEnds():
                return lambda: (calls.deliver_ends(action), _NO_BODIES)
            case p.Release(attempts):
                return lambda: _released(calls, attempts)
            case p.Start() | p.Cancel() | p.Finish():
                return None

    def answer(self, action: p.Action, result: CallResult) -> None:
        """Take in what a call told."""
        happened, bodies = result
        self._ready.update((body.attempt, body) for body in bodies)
        if isinstance(action, p.Settle) and isinstance(happened, p.Settled):
            for settle in action.settles:
                self._ended.pop(_key(settle), None)
        if happened is not None:
            self.post(happened)

    def close(self) -> None:
        """Take the functions out of memory that rest here. Of a worker that ends; in whatever thread."""
        self._cache.close()

    def last(self, now: float) -> tuple[tuple[JobSettle, ...], tuple[Attempt, ...]]:
        """Return what is to be settled and what is to be given back by a worker that ends here and now.

        With what has happened since the machine was last asked: bodies have ended, a claim has come back.
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
