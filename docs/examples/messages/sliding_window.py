"""A batch of records, each a child run: at most three at once, and a history that never grows beyond a page."""

from holdfast import Engine, SyncEngine, Worker, continue_as_new, step, workflow
from holdfast.workflows import parallel_map

PAGE = 20
AT_ONCE = 3


@step
def load(first: int, end: int) -> list[int]:
    return list(range(first, min(first + PAGE, end)))


@step
def square(record: int) -> int:
    return record * record


@workflow
async def process(record: int) -> int:
    return await square(record)


@workflow
async def batch(first: int, end: int, total: int = 0) -> int:
    page = await load(first, end)
    total += sum(await parallel_map(process, page, limit=AT_ONCE))
    if first + PAGE >= end:
        return total
    return await continue_as_new(batch(first + PAGE, end, total))


WORKFLOWS = (batch, process)


def use(engine: SyncEngine) -> str:
    run = engine.start(batch(0, 50), id="squares")
    return f"{run.result()} in {run.info().generation} generations"


def main() -> None:
    with Engine.open("sqlite:///window.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
