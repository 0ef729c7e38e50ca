"""One run of a group at a time: a new start is refused while there is one."""

import asyncio

from holdfast import Concurrency, Engine, Worker, step, workflow
from holdfast.errors import ConcurrencyFullError


@step
async def publish(version: str) -> str:
    await asyncio.sleep(0.1)
    return f"{version} is published"


@workflow(concurrency=Concurrency(by="package", full="refuse"))
async def release(version: str) -> str:
    return await publish(version)


def main() -> None:
    with Engine.open("sqlite:///releases.db", workflows=[release]).sync as engine, Worker(engine):
        first = engine.start(release("1.0"), attributes={"package": "parser"})
        try:
            engine.start(release("1.1"), attributes={"package": "parser"})
        except ConcurrencyFullError as error:
            print(error.code)
        print(first.result())


if __name__ == "__main__":
    main()
