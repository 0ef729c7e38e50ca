"""A pool lends named resources to runs: who asks first gets the next one that is free, and gives it back."""

import asyncio
from datetime import timedelta

from holdfast import Channel, Engine, Worker, step, workflow
from holdfast.workflows import signal_run, wait_until

wanted = Channel("wanted", str)
granted = Channel("granted", str)
returned = Channel("returned", str)


@workflow
async def pool(resources: list[str]) -> None:
    free = list(resources)

    async def lend() -> None:
        while True:
            request = await wanted.receive_message()
            await wait_until(lambda: free)
            assert request.sender is not None
            await signal_run(request.sender, granted(free.pop(0)))

    async def take_back() -> None:
        while True:
            free.append(await returned.receive())

    await asyncio.gather(lend(), take_back())


@step
def print_on(printer: str, page: str) -> str:
    return f"{page} on {printer}"


@workflow
async def job(page: str) -> str:
    await signal_run("printers", wanted(page))
    printer = await granted.receive(timeout=timedelta(hours=1))
    try:
        return await print_on(printer, page)
    finally:
        await signal_run("printers", returned(printer))


def main() -> None:
    with Engine.open("sqlite:///pool.db", workflows=[pool, job]).sync as engine, Worker(engine):
        printers = engine.start(pool(["left", "right"]), id="printers")
        jobs = [engine.start(job(f"page {number}")) for number in range(5)]
        pages = [one.result() for one in jobs]
        print(sorted(page.split(" on ")[0] for page in pages))
        printers.cancel()


if __name__ == "__main__":
    main()
