"""One run of a group at a time: a new start cancels the run under way."""

import asyncio

from holdfast import Concurrency, Engine, Worker, step, workflow


@step
async def build(commit: str) -> str:
    await asyncio.sleep(60 if commit == "a1" else 0)
    return f"{commit} is built"


@workflow(concurrency=Concurrency(by="branch", full="cancel"))
async def deploy(commit: str) -> str:
    return await build(commit)


def main() -> None:
    with Engine.open("sqlite:///deploys.db", workflows=[deploy]).sync as engine, Worker(engine):
        first, second = (
            engine.start(deploy(commit), attributes={"branch": "main"}) for commit in ("a1", "b2")
        )
        print(second.result(), first.info().status)


if __name__ == "__main__":
    main()
