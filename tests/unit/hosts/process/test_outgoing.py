"""When a worker's machine looks for events, and how it brings them to sinks."""

import attrs

from holdfast.hosts.process import protocol as p
from holdfast.hosts.process.machine import WorkerMachine
from holdfast.hosts.process.outgoing import IDLE_POLLS, LAST_FLUSH, LOOKS_APART
from holdfast.hosts.process.settings import Settings

SETTINGS = Settings(definitions=("w@1",), queues=("default",), sinks=("audit", "search"))


def outgoing(actions: list[p.Action]) -> list[p.Action]:
    return [action for action in actions if isinstance(action, p.Look | p.Flush)]


def step(machine: WorkerMachine, now: float, *inputs: p.Input) -> list[p.Action]:
    return outgoing(machine.step(now, inputs))


def looked(now: float = 0.0) -> WorkerMachine:
    """A machine that has a session, has found no work, and has just looked for nothing."""
    machine = WorkerMachine(SETTINGS)
    assert step(machine, now) == [p.Look()]
    machine.step(now, [p.SessionReady()])
    machine.step(now, [p.Claimed((), 1), p.SweepDone(more=False)])
    assert step(machine, now, p.NewsFound(())) == []
    return machine


def test_without_sinks_it_never_looks() -> None:
    machine = WorkerMachine(attrs.evolve(SETTINGS, sinks=()))

    assert step(machine, 0.0, p.Woken()) == step(machine, 100.0, p.Woken()) == []


def test_an_idle_worker_looks_seldom() -> None:
    machine = looked()

    assert step(machine, IDLE_POLLS - 0.01) == []
    assert step(machine, IDLE_POLLS) == [p.Look()]


def test_what_it_hears_makes_it_look_soon_but_not_all_the_time() -> None:
    for heard in (p.Woken(), p.Settled(opened=False), p.RunsEnded(frozenset({"r"}))):
        machine = looked()
        assert step(machine, 1.0, heard) == [p.Look()]
        assert step(machine, 1.0, p.NewsFound(()), heard) == []
        assert step(machine, 1.0 + LOOKS_APART) == [p.Look()]


def test_each_sink_with_news_is_flushed_on_its_own() -> None:
    machine = looked()
    step(machine, 5.0)
    assert step(machine, 5.0, p.NewsFound(("audit", "search"))) == [p.Flush("audit"), p.Flush("search")]
    assert step(machine, 5.1, p.SinkFlushed("search", more=True)) == [p.Look()]

    assert step(machine, 5.1, p.NewsFound(("audit", "search"))) == [p.Flush("search")]


def test_a_sink_that_hangs_keeps_nothing_else_waiting() -> None:
    machine = looked()
    step(machine, 5.0)
    step(machine, 5.0, p.NewsFound(("audit",)), p.SweepDone(more=False))
    looks = sweeps = 0
    answers: list[p.Input] = []
    for now in range(6, 60):
        actions = machine.step(float(now), answers)
        answers = [p.NewsFound(("audit",)) for action in actions if action == p.Look()]
        answers += [p.SweepDone(more=False) for action in actions if action == p.Sweep()]
        looks, sweeps = looks + actions.count(p.Look()), sweeps + actions.count(p.Sweep())
        assert p.Flush("audit") not in actions

    assert looks > 5
    assert sweeps > 5


def test_when_the_store_does_not_answer_it_looks_again_later() -> None:
    machine = looked()
    step(machine, 5.0)
    assert step(machine, 5.0, p.CallFailed(p.Look())) == []
    (look,) = step(machine, 6.0)
    assert step(machine, 6.0, p.NewsFound(("audit",))) == [p.Flush("audit")]
    assert look == p.Look()
    assert step(machine, 6.0, p.CallFailed(p.Flush("audit"))) == []
    step(machine, 12.0)

    assert step(machine, 12.0, p.NewsFound(("audit",))) == [p.Flush("audit")]


def test_a_worker_that_ends_brings_its_sinks_what_is_left() -> None:
    machine = looked()
    assert machine.step(2.0, [p.Drain()]) == [p.Look()]
    assert machine.step(2.0, [p.NewsFound(("audit",))]) == [p.Flush("audit")]
    assert machine.step(2.5, [p.SinkFlushed("audit", more=True)]) == [p.Look()]

    assert machine.step(2.5, [p.NewsFound(())]) == [p.Finish()]


def test_a_worker_that_ends_does_not_wait_for_a_sink_that_hangs() -> None:
    machine = looked()
    machine.step(2.0, [p.Drain()])
    machine.step(2.0, [p.NewsFound(("audit",))])
    assert machine.next_step() == 2.0 + LAST_FLUSH

    assert machine.step(2.0 + LAST_FLUSH, []) == [p.Finish()]
