"""A reader sees the parts of an answer while the run still writes it, each once and in order."""

from holdfast import Engine, SyncEngine, Worker, publish, step, workflow

PARTS = ("Durable ", "runs ", "survive ", "crashes.")


@step
def write(number: int) -> str:
    return PARTS[number]


@workflow
async def answer() -> int:
    for number in range(len(PARTS)):
        publish("part", await write(number))
    return len(PARTS)


WORKFLOWS = (answer,)


def use(engine: SyncEngine) -> list[str]:
    run = engine.start(answer())
    parts = list(run.published_values("part", str, follow=True))
    assert run.result() == len(parts)
    return parts


def main() -> None:
    with Engine.open("sqlite:///answers.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
