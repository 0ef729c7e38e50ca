"""Runs borrow named resources: the one that has waited longest gets the next one that is free, and gives it back."""

from datetime import timedelta

from holdfast import Engine, SyncEngine, Topic, Worker, step, workflow

free = Topic("free-printers", str)


@step
def print_on(printer: str, page: str) -> str:
    return f"{page} on {printer}"


@workflow
async def job(page: str) -> str:
    printer = await free.group("jobs").receive(timeout=timedelta(hours=1))
    try:
        return await print_on(printer, page)
    finally:
        await free.publish(printer)


WORKFLOWS = (job,)


def use(engine: SyncEngine) -> list[str]:
    jobs = [engine.start(job(f"page {number}")) for number in range(5)]
    for printer in ("left", "right"):
        engine.publish(free(printer), id=printer)
    return [one.result().split(" on ")[0] for one in jobs]


def main() -> None:
    with Engine.open("sqlite:///pool.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
