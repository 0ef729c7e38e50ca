"""Groups take turns, with one run of each at a time, however many runs one of them starts."""

from holdfast import Concurrency, Engine, Fair, Worker, step, workflow

rendered: list[str] = []


@step
def render(order: str) -> None:
    rendered.append(order)


@workflow(fair=Fair(by="group"), concurrency=Concurrency(by="group"))
async def order(name: str) -> None:
    await render(name)


def main() -> None:
    rendered.clear()
    with Engine.open("sqlite:///orders.db", workflows=[order]).sync as engine:
        groups = ["flood"] * 6 + ["ann", "bob"]
        runs = [engine.start(order(group), attributes={"group": group}) for group in groups]
        with Worker(engine, concurrency=1):
            for run in runs:
                run.result()
    print(rendered)


if __name__ == "__main__":
    main()
