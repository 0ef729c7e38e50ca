"""The smallest pipeline: two stages, a worker in the same process, one run."""

import asyncio

from holdfast import Engine, Pipeline, Worker, stage


@stage
def greet(name: str) -> str:
    return f"Hello, {name}!"


@stage
async def shout(text: str) -> str:
    return text.upper()


hello = Pipeline("hello", input=str).pipe(greet).pipe(shout)


async def main() -> None:
    async with Engine.open("sqlite:///hello-pipeline.db", workflows=[hello]) as engine, Worker(engine):
        print(await engine.run(hello("world")))


if __name__ == "__main__":
    asyncio.run(main())
