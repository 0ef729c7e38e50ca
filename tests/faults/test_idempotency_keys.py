"""Thousands of idempotency keys, each used concurrently by several processes: one run and one reply for each."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunCreate
from holdfast.kernel.commands.codec import reply_json
from holdfast.ports.errors import CommandError, IdempotencyConflictError
from holdfast.ports.json import canonical
from holdfast.ports.queries.store import CountAll
from holdfast.ports.records.values import Payload
from tests.sizes import sized

PROCESSES = 4
"""Engines with their own connections: to a database they are processes."""
BATCH = 100


@stage
def nothing(number: int) -> int:
    return number


KEYED = Pipeline("keyed", input=int).pipe(nothing)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[SyncEngine]]:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_with_tables")
    opened = [Engine.open(url, workflows=[KEYED]).sync for _ in range(PROCESSES)]
    opened[0].core.connect()
    yield opened
    for engine in opened:
        engine.core.close()


def create(number: int, value: int) -> RunCreate:
    return RunCreate(
        workflow="keyed", input=Payload(inline=canonical(value)), idempotency_key=f"key-{number}"
    )


def all_at_once(
    engines: Sequence[SyncEngine], orders: Sequence[Sequence[int]], of: Callable[[int], RunCreate]
) -> list[dict[int, list[object]]]:
    """Send the keys from each engine in its own order, one alone and then in batches, concurrently."""
    ready = threading.Barrier(len(orders))

    def send(place: int) -> dict[int, list[object]]:
        answers: dict[int, list[object]] = {}
        engine, order = engines[place % len(engines)], orders[place]
        ready.wait()
        at = 0
        while at < len(order):
            chosen = order[at : at + (1 if at < 10 else BATCH)]
            for number, answer in zip(
                chosen, engine.kernel.dispatch_many([of(number) for number in chosen]), strict=True
            ):
                answers.setdefault(number, []).append(answer)
            at += len(chosen)
        return answers

    with ThreadPoolExecutor(len(orders)) as threads:
        return list(threads.map(send, range(len(orders))))


def _text(answer: object) -> str:
    assert not isinstance(answer, CommandError), answer
    return reply_json(answer)


def one_run_for_each(engines: Sequence[SyncEngine], keys: int, duplicates: int) -> None:
    draw = Random(keys)
    orders: list[list[int]] = []
    for _ in range(duplicates):
        orders.append(list(range(keys)))
        draw.shuffle(orders[-1])
    answers = all_at_once(engines, orders, lambda number: create(number, number))

    replies = [{_text(answer) for one in answers for answer in one[number]} for number in range(keys)]
    assert [len(texts) for texts in replies] == [1] * keys, "not the same reply, byte for byte"
    assert sum(len(one[number]) for one in answers for number in range(keys)) == keys * duplicates
    assert len({text for texts in replies for text in texts}) == keys
    counted = engines[0].core.stores.persistence.read(CountAll("default"))
    assert sum(counted.runs.values()) == keys

    # With any other body the same key is refused, and changes nothing.
    others = all_at_once(engines, orders[:2], lambda number: create(number, number + 1))
    refused = [answer for one in others for found in one.values() for answer in found]
    assert len(refused) == 2 * keys
    assert all(isinstance(answer, IdempotencyConflictError) for answer in refused)
    assert engines[0].core.stores.persistence.read(CountAll("default")) == counted


@pytest.mark.slow
def test_a_key_means_one_run_and_one_reply_however_many_use_it_at_once(engines: list[SyncEngine]) -> None:
    one_run_for_each(engines, keys=60, duplicates=8)


@pytest.mark.slow
def test_thousands_of_keys_that_are_used_twenty_times_at_once(engines: list[SyncEngine]) -> None:
    one_run_for_each(engines, keys=sized(2_000, 10_000), duplicates=20)
