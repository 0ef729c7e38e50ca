"""Five calls at a time in all, one of each tenant, and tenants take turns."""

import asyncio

from holdfast import Concurrency, Engine, Fair, Worker, step, workflow

under_way: list[str] = []
seen: list[tuple[str, ...]] = []


@step(queue="calls", max_concurrency=5)
async def call(tenant: str) -> None:
    under_way.append(tenant)
    seen.append(tuple(under_way))
    await asyncio.sleep(0.02)
    under_way.remove(tenant)


@workflow(fair=Fair(by="tenant"), concurrency=Concurrency(by="tenant"))
async def handle(tenant: str) -> None:
    await call(tenant)


def main() -> None:
    with Engine.open("sqlite:///calls.db", workflows=[handle]).sync as engine, Worker(engine):
        tenants = [f"tenant {number % 8}" for number in range(16)]
        runs = [engine.start(handle(tenant), attributes={"tenant": tenant}) for tenant in tenants]
        for run in runs:
            run.result()
    print(len(seen), all(len(calls) <= 5 and len(set(calls)) == len(calls) for calls in seen))


if __name__ == "__main__":
    main()
