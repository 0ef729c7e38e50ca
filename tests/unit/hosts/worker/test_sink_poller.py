"""When a worker that drains has no more events to deliver."""

import attrs

from holdfast.hosts.worker.machine_protocol import Action, FindEvents, Flush
from holdfast.hosts.worker.sink_poller import SinkPoller
from tests.unit.hosts.worker.test_machine import SETTINGS

WITH_SINKS = attrs.evolve(SETTINGS, sinks=("audit",))


def test_a_look_that_began_before_the_end_does_not_say_that_all_is_brought() -> None:
    outgoing = SinkPoller(WITH_SINKS)
    assert outgoing.look(100.0) == [FindEvents()]
    actions: list[Action] = []
    assert not outgoing.is_over(100.1, actions)
    assert outgoing.found(100.2, ()) == []
    assert not outgoing.is_over(100.2, actions)
    assert actions == [FindEvents()]
    outgoing.found(100.3, ())
    assert outgoing.is_over(100.3, actions)


def test_after_each_round_it_is_looked_whether_that_was_all() -> None:
    outgoing = SinkPoller(WITH_SINKS)
    outgoing.look(100.0)
    assert outgoing.found(100.1, ["audit"]) == [Flush("audit")]
    actions: list[Action] = []
    assert not outgoing.is_over(100.2, actions)
    outgoing.found(100.3, ["audit"])
    outgoing.flushed(100.4, "audit", more=False)
    assert not outgoing.is_over(100.4, actions)
    assert actions == [FindEvents(), FindEvents()]
    outgoing.found(100.5, ())
    assert outgoing.is_over(100.5, actions)
