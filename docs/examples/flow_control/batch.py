"""Single calls are carried out three at a time, and each caller gets its own result."""

from datetime import timedelta

from holdfast import Engine, Gather, Worker, step, workflow


@step
def shout_all(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


@workflow(gather=Gather(within=timedelta(milliseconds=200), most=3, keep="all", split=True))
async def shout(texts: list[str]) -> list[str]:
    return await shout_all(texts)


def main() -> None:
    with Engine.open("sqlite:///shouts.db", workflows=[shout]).sync as engine, Worker(engine):
        calls = [engine.start(shout([text])) for text in ("one", "two", "three")]
        print([call.result() for call in calls], len({call.id for call in calls}))


if __name__ == "__main__":
    main()
