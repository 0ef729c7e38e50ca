"""How often a run changes threads. A hop costs more than most of what is done in the thread."""

from collections.abc import Callable
from typing import cast

import pytest

from holdfast.hosts.execution import threads
from holdfast.hosts.serverless.host import ServerlessHost
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.test_functions import chain


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every start of a call in another thread."""
    made: list[object] = []
    start = cast("Callable[[Callable[[], None]], None]", vars(threads)["_start_pooled"])

    def noting(call: Callable[[], None]) -> None:
        made.append(call)
        start(call)

    monkeypatch.setitem(vars(threads), "_start_pooled", noting)
    return made


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_a_function_is_opened_in_a_thread_and_each_step_is_recorded_in_one(
    open_engine: OpenEngine, hops: list[object], steps: int
) -> None:
    """The last step is fed and not recorded, and that takes a thread too. Async steps run on the loop."""
    engine = open_engine(chain)
    host = ServerlessHost(engine)
    counts = list[int]()
    for _ in range(3):
        engine.sync.start(chain(steps))
        hops.clear()
        assert host.process_available_jobs(max_jobs=1, concurrency=1).completed == 1
        counts.append(len(hops))
    assert counts == [1 + steps] * 3
