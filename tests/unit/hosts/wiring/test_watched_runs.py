"""Rows of a run that somebody in this process watches are announced when they are stored."""

from collections.abc import Sequence

import pytest

from holdfast import Channel, Engine, workflow
from holdfast.ports.transport import Hint, HistoryGrew

signals = Channel("signals", int)


@workflow
async def waiting() -> None:
    await signals.receive()


def test_a_row_is_announced_while_its_run_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[Hint] = []

    def announce(hints: Sequence[Hint]) -> None:
        announced.extend(hints)

    def grown() -> list[str]:
        return [hint.run for hint in announced if isinstance(hint, HistoryGrew)]

    with Engine.open("memory://", workflows=[waiting]).sync as engine:
        core = engine.core
        run, other = engine.start(waiting()), engine.start(waiting())
        key = run.info().key
        monkeypatch.setattr(core.stores.transport, "announce", announce)
        run.signal(signals(1))
        assert grown() == []
        ended = core.listener.when_ended(key)
        run.signal(signals(2))
        assert grown() == []  # it has a hint of its own

        past = core.listener.when_past(key, 10)
        run.signal(signals(3))
        other.signal(signals(3))
        assert grown() == [key]

        past.cancel()
        run.signal(signals(4))
        assert grown() == [key]
        ended.cancel()
