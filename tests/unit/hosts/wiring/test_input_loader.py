"""Inputs of attempts: assembled from references, inline values and verified blobs."""

from collections.abc import Callable

import pytest
from attrs import evolve
from typing_extensions import override

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.wiring.payloads import INLINE_MAX, BlobOwner, Payloads
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import Blocked, Failed
from holdfast.ports.blobs import BlobStore
from holdfast.ports.changes import Insert
from holdfast.ports.errors import (
    BlobCorruptError,
    BlobMissingError,
    HoldfastError,
    NoBlobStoreError,
    UnknownPlanError,
)
from holdfast.ports.json import compact, parse
from holdfast.ports.queries.values import LoadValues, LoadWork, PlansByFingerprint
from holdfast.ports.records.values import MapItems, Payload
from holdfast.ports.references import (
    Reference,
    item_reference,
    leaves,
    list_reference,
    located,
    map_reference,
    of_run,
    partial_reference,
)
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.conformance.builders import a_completed_row, a_failed_row, a_key, a_row, a_run
from holdfast.testing.faults import Fault, FaultPlan, FaultyBlobStore
from tests.unit.hosts.attempt_harness import Bench

PLACE = BlobOwner(namespace="default", run="r", stage="s", epoch=3)
LARGE = '"' + "x" * INLINE_MAX + '"'


@stage
def double(x: int) -> int:
    return 2 * x


@stage
def nothing() -> int:
    return 0


@stage
def say(text: str) -> str:
    return text


@stage
def echo(data: list[str]) -> list[str]:
    return data


SIMPLE = Pipeline("simple", input=int).pipe(double)


# Payloads -------------------------------------------------------------------------------------------------------


def test_a_small_value_is_kept_inline() -> None:
    blobs = MemoryBlobStore()
    text = "x" * INLINE_MAX

    assert Payloads(blobs).put(text, PLACE) == Payload(inline=text)
    assert list(blobs.list("")) == []


def test_a_large_value_is_kept_in_a_blob_of_its_attempt_named_by_its_hash() -> None:
    blobs = MemoryBlobStore()
    payload = Payloads(blobs).put(LARGE, PLACE)

    (key,) = blobs.list("")
    assert payload == Payload(blob=key)
    assert key.rpartition("/")[0] == "default/r/s/3"
    assert Payloads(blobs).get(payload) == LARGE


def test_without_a_blob_store_every_value_is_kept_inline() -> None:
    assert Payloads(None).put(LARGE, PLACE) == Payload(inline=LARGE)


def test_a_value_in_a_blob_can_not_be_had_without_a_blob_store() -> None:
    payload = Payloads(MemoryBlobStore()).put(LARGE, PLACE)

    with pytest.raises(NoBlobStoreError, match="blobs="):
        Payloads(None).get(payload)


def test_a_blob_that_is_missing_or_damaged_is_found_out() -> None:
    blobs = MemoryBlobStore()
    payload = Payloads(blobs).put(LARGE, PLACE)
    assert payload.blob is not None

    blobs.damage(payload.blob, b"other")
    with pytest.raises(BlobCorruptError):
        Payloads(blobs).get(payload)
    blobs.delete(payload.blob)
    with pytest.raises(BlobMissingError):
        Payloads(blobs).get(payload)


def test_two_attempts_never_share_a_blob() -> None:
    blobs = MemoryBlobStore()
    for epoch in (1, 2):
        Payloads(blobs).put(LARGE, BlobOwner(namespace="default", run="r", stage="s", epoch=epoch))

    assert len(list(blobs.list(""))) == 2


# Values from their parts ----------------------------------------------------------------------------------------


def bench_with_values() -> Bench:
    """A run with three outputs of a map, stored in another order than its items, and a page of items."""
    bench = Bench(SIMPLE)
    rows = [
        a_completed_row(1, 1, output="10", node="first"),
        a_completed_row(1, 2, output='"c"', node="bill", item=2),
        a_completed_row(1, 3, output='"a"', node="bill", item=0),
        a_completed_row(1, 4, output='{"other":1}', node="ship"),
        a_completed_row(1, 5, output='"b"', node="bill", item=1),
    ]
    page = MapItems(run=a_key(1), node="bill", page=1, items=compact([["1", None], ["[2]", None]]))
    bench.store.transact(lambda tx: tx.apply([Insert(a_run(1)), *map(Insert, rows), Insert(page)]))
    return bench


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        (1, 10),
        (4, {"other": 1}),
        (item_reference("bill", 1, 1), [2]),
        (map_reference("bill", 1, 5), ["a", "b", "c"]),
        (map_reference("bill", 3, 5), ["a", "b"]),
        (list_reference(()), []),
        (list_reference((1, 4)), [10, {"other": 1}]),
        (list_reference((1, map_reference("bill", 1, 5))), [10, ["a", "b", "c"]]),
        (list_reference((list_reference((1, 1)), item_reference("bill", 1, 0))), [[10, 10], 1]),
    ],
)
def test_a_value_is_put_together_from_its_parts(reference: Reference, value: object) -> None:
    assert parse(bench_with_values().core.inputs.text(a_key(1), reference)) == value


# Maps that may lose items ---------------------------------------------------------------------------------------


def bench_with_failures() -> Bench:
    """A run and its next generation, whose map `bill` has completed and failed items, in mixed orders."""
    bench = Bench(SIMPLE)
    rows = [
        a_row(1, 1, payload=Payload(inline="10")),
        a_failed_row(1, 2, item=3, why='{"item":3}'),
        a_completed_row(1, 3, item=2, output='"c"'),
        a_failed_row(1, 4, item=1, why='{"item":1}'),
        a_completed_row(1, 5, item=0, output='{"b":1, "a":2}'),
        a_completed_row(2, 1, output='"of 2"'),
    ]
    bench.store.transact(lambda tx: tx.apply([Insert(a_run(1)), Insert(a_run(2)), *map(Insert, rows)]))
    return bench


GAVE, LOST = [{"a": 2, "b": 1}, "c"], [{"item": 1}, {"item": 3}]


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        pytest.param(("failures", "bill", 1, 5), LOST, id="failures"),
        pytest.param(partial_reference("bill", 1, 5), {"failures": LOST, "results": GAVE}, id="partial"),
        pytest.param(partial_reference("bill", 2, 2), {"failures": LOST[1:], "results": []}, id="all lost"),
        pytest.param(partial_reference("bill", 3, 3), {"failures": [], "results": ["c"]}, id="none lost"),
        pytest.param(partial_reference("ship", 1, 5), {"failures": [], "results": []}, id="no items"),
        pytest.param(
            list_reference((1, partial_reference("bill", 3, 5))),
            [10, {"failures": LOST[:1], "results": GAVE}],
            id="in a list",
        ),
        pytest.param(
            list_reference((list_reference(()), ("failures", "bill", 2, 3))), [[], LOST[1:]], id="beside"
        ),
    ],
)
@pytest.mark.parametrize("of", [None, a_key(1)], ids=["here", "elsewhere"])
def test_what_a_map_gave_that_lost_items_is_put_together_with_what_it_lost(
    reference: Reference, value: object, of: str | None
) -> None:
    bench = bench_with_failures()
    run = a_key(1)
    if of is not None:
        run, reference = a_key(2), of_run(of, reference)

    text = bench.core.inputs.text(run, reference)

    assert parse(text) == value


def test_a_partial_value_is_put_together_with_one_question_and_without_looking_into_its_parts() -> None:
    bench = bench_with_failures()
    bench.store.asked.clear()

    text = bench.core.inputs.text(a_key(1), partial_reference("bill", 1, 5))

    assert text == '{"failures":[{"item":1},{"item":3}],"results":[{"b":1, "a":2},"c"]}'
    (question,) = bench.store.asked
    assert isinstance(question, LoadValues)
    assert set(question.wanted) == {
        (a_key(1), map_reference("bill", 1, 5)),
        (a_key(1), ("failures", "bill", 1, 5)),
    }


def test_a_partial_value_is_composed_of_what_was_read_for_many() -> None:
    bench = bench_with_failures()
    partial, whole = partial_reference("bill", 1, 5), map_reference("bill", 1, 5)
    wanted = [located(a_key(1), leaf) for reference in (partial, whole) for leaf in leaves(reference)]
    values = bench.core.inputs.values(tuple(dict.fromkeys(wanted)))
    bench.store.asked.clear()

    assert parse(bench.core.inputs.compose(a_key(1), partial, values)) == {"failures": LOST, "results": GAVE}
    assert parse(bench.core.inputs.compose(a_key(1), whole, values)) == GAVE
    assert parse(bench.core.inputs.compose(a_key(2), of_run(a_key(1), partial), values)) == {
        "failures": LOST,
        "results": GAVE,
    }
    assert bench.store.asked == []


def test_parts_of_a_partial_value_may_be_in_blobs() -> None:
    blobs = MemoryBlobStore()
    bench = Bench(SIMPLE, blobs=blobs)
    large = Payloads(blobs).put(LARGE, PLACE)
    rows = [
        evolve(a_completed_row(1, 1, item=1), payload=large),
        evolve(a_failed_row(1, 2, item=0), payload=large),
    ]
    bench.store.transact(lambda tx: tx.apply([Insert(a_run(1)), *map(Insert, rows)]))

    text = bench.core.inputs.text(a_key(1), partial_reference("bill", 1, 2))

    assert text == f'{{"failures":[{LARGE}],"results":[{LARGE}]}}'


def test_a_value_is_put_together_with_one_question() -> None:
    bench = bench_with_values()
    bench.store.asked.clear()
    bench.core.inputs.text(a_key(1), list_reference((1, 4, map_reference("bill", 1, 5))))

    assert len(bench.store.asked) == 1


def test_parts_may_be_in_blobs() -> None:
    blobs = MemoryBlobStore()
    bench = Bench(Pipeline("w", input=str).pipe(say), blobs=blobs)
    large = Payloads(blobs).put(LARGE, PLACE)
    rows = [a_completed_row(1, 1, output="10"), evolve(a_completed_row(1, 2), payload=large)]
    bench.store.transact(lambda tx: tx.apply([Insert(a_run(1)), *map(Insert, rows)]))

    text = bench.core.inputs.text(a_key(1), list_reference((1, 2)))

    assert text == f"[10,{LARGE}]"


def test_a_plan_is_read_once_and_one_that_is_not_stored_is_an_error() -> None:
    bench = Bench(SIMPLE)
    bench.start(SIMPLE(1))
    for _ in range(2):
        bench.core.inputs.plan(SIMPLE.plan().fingerprint)

    assert sum(isinstance(question, PlansByFingerprint) for question in bench.store.asked) == 1
    with pytest.raises(UnknownPlanError):
        bench.core.inputs.plan("f" * 32)


# Many attempts at once ------------------------------------------------------------------------------------------


def test_what_many_attempts_need_is_read_with_one_question() -> None:
    bench = Bench(SIMPLE)
    for number in range(50):
        bench.start(SIMPLE(number), id=str(number))
    bench.start(SIMPLE(0), id="another")
    bench.prepare(bench.claim(1))
    bench.store.asked.clear()

    bodies = bench.prepare()

    assert [type(question) for question in bench.store.asked] == [LoadWork]
    assert {body.arguments() for body in bodies} == {(number,) for number in range(50)}


def test_no_value_is_read_for_a_stage_that_takes_none() -> None:
    pipeline = Pipeline("w", input=int).pipe(nothing)
    bench = Bench(pipeline)
    bench.start(pipeline(1))
    bench.store.asked.clear()

    assert bench.body().arguments() == ()
    assert [question.wanted for question in bench.store.asked if isinstance(question, LoadWork)] == [()]
    assert not any(isinstance(question, LoadValues) for question in bench.store.asked)


def test_beside_a_stage_that_takes_none_only_what_others_take_is_read() -> None:
    pipeline = Pipeline("w", input=int).parallel(nothing, double)
    bench = Bench(pipeline)
    bench.start(pipeline(4))
    bench.store.asked.clear()

    assert sorted(body.arguments() for body in bench.prepare()) == [(), (4,)]
    (question,) = [question for question in bench.store.asked if isinstance(question, LoadWork)]
    assert len(question.wanted) == 1


def test_an_input_that_is_not_of_the_stage_s_type_blocks_the_run() -> None:
    """The code of a stage may have changed since the start of the run."""

    @stage(name="double")
    def was(x: str) -> int:
        return len(x)

    bench = Bench(pipeline := Pipeline("w", input=str).pipe(was))
    bench.start(pipeline("a"))
    changed = Bench(Pipeline("w", input=int).pipe(double), persistence=bench.store)
    (body,) = changed.prepare(bench.claim())
    with pytest.raises(HoldfastError) as raised:
        body.arguments()

    outcome = body.failed(raised.value)
    assert isinstance(outcome, Blocked)
    assert outcome.failure.code == "unreadable_input"
    assert outcome.failure.message.startswith(
        "the input of stage 'double', row 1 of the history, can't be read"
    )


# Blobs that can't be had ----------------------------------------------------------------------------------------


class BrokenBlobs(MemoryBlobStore):
    """A user's BlobStore with errors of its own."""

    @override
    def get(self, key: str, /) -> bytes:
        raise OSError(f"no route to {key}")


def removed(blobs: MemoryBlobStore) -> BlobStore:
    for key in list(blobs.list("")):
        blobs.delete(key)
    return blobs


def damaged(blobs: MemoryBlobStore) -> BlobStore:
    for key in blobs.list(""):
        blobs.damage(key, b"other")
    return blobs


def unreachable(blobs: MemoryBlobStore) -> BlobStore:
    return FaultyBlobStore(blobs, FaultPlan.always(Fault.FAILS_BEFORE))


def broken(_: MemoryBlobStore) -> BlobStore:
    return BrokenBlobs()


def none(_: MemoryBlobStore) -> None:
    return None


@pytest.mark.anyio
@pytest.mark.parametrize("mapped", [False, True], ids=["stage", "expand"])
@pytest.mark.parametrize(
    ("spoil", "code", "retryable"),
    [
        (removed, "blob_missing", False),
        (damaged, "blob_corrupt", True),
        (unreachable, "unavailable", True),
        (broken, "body_error", True),
        (none, "no_blob_store", True),
    ],
    ids=["missing", "corrupt", "unreachable", "broken", "none"],
)
async def test_an_input_that_can_not_be_had_fails_its_attempt_and_no_other(
    spoil: Callable[[MemoryBlobStore], BlobStore | None], code: str, retryable: bool, mapped: bool
) -> None:
    pipeline = Pipeline("w", input=list[str]).pipe(each(say) if mapped else echo)
    blobs = MemoryBlobStore()
    store = MemoryPersistence()
    bench = Bench(pipeline, blobs=blobs, persistence=store)
    bench.start(pipeline(["x" * INLINE_MAX]), id="large")
    bench.start(pipeline(["small"]), id="small")
    attempts = bench.claim()
    spoiled = Bench(pipeline, blobs=spoil(blobs), persistence=store)

    bodies = spoiled.prepare(attempts)
    outcomes = {body.work.run.id: await spoiled.run(body) for body in bodies}

    large = outcomes["large"]
    assert isinstance(large, Failed)
    assert (large.failure.code, large.failure.retryable) == (code, retryable)
    assert large.failure.message
    assert not isinstance(outcomes["small"], Failed)
