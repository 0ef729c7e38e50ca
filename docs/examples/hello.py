"""The smallest whole program: a durable function, a worker in the same process, one run."""

import asyncio

from holdfast import Engine, Worker, step, workflow


@step
def greet(name: str) -> str:
    return f"Hello, {name}!"


@step
async def shout(text: str) -> str:
    return text.upper()


@workflow
async def hello(name: str) -> str:
    greeting = await greet(name)
    return await shout(greeting)


async def main() -> None:
    async with Engine.open("sqlite:///hello.db", workflows=[hello]) as engine, Worker(engine):
        print(await engine.run(hello("world")))


if __name__ == "__main__":
    asyncio.run(main())
