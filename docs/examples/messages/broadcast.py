"""One message reaches every run that follows the topic, whoever started it."""

from holdfast import Engine, SyncEngine, Topic, Worker, step, workflow

prices = Topic("prices", int)


@step
def notify(trader: str, price: int) -> str:
    return f"{trader} buys at {price}"


@workflow
async def buy_below(trader: str, limit: int) -> str:
    async for price in prices:
        if price < limit:
            return await notify(trader, price)
    raise AssertionError("a topic does not end")


WORKFLOWS = (buy_below,)


def use(engine: SyncEngine) -> list[str]:
    limits = {"ann": 100, "bob": 90, "eve": 80}
    traders = [engine.start(buy_below(trader, limit)) for trader, limit in limits.items()]
    for price in (105, 95, 85, 75):
        engine.publish(prices(price))
    return [trader.result() for trader in traders]


def main() -> None:
    with Engine.open("sqlite:///prices.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
