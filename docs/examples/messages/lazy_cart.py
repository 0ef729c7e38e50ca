"""A shopping cart begins with its first item, and its total is looked up before an item is in it."""

import asyncio
from dataclasses import dataclass, field

from holdfast import Engine, SyncEngine, Worker, expose, step, update, workflow
from holdfast.errors import UpdateFailedError
from holdfast.workflows import updates_done, wait_until

PRICES = {"tea": 300, "cup": 500}


@step
def look_up(item: str) -> int | None:
    return PRICES.get(item)


@dataclass
class Cart:
    prices: dict[str, int] = field(default_factory=dict[str, int])
    is_ordered: asyncio.Event = field(default_factory=asyncio.Event)

    @update
    async def add(self, item: str) -> int:
        price = await look_up(item)
        if price is None:
            raise ValueError(f"there is no {item}")
        self.prices[item] = price
        return sum(self.prices.values())

    @add.validator
    def is_open(self, item: str) -> None:
        if self.is_ordered.is_set():
            raise ValueError(f"it is too late for a {item}")

    @update
    def order(self) -> None:
        self.is_ordered.set()


@workflow
async def shop() -> dict[str, int]:
    cart = expose(Cart())
    await cart.is_ordered.wait()
    await wait_until(updates_done)
    return cart.prices


WORKFLOWS = (shop,)


def add(engine: SyncEngine, customer: str, item: str) -> str:
    try:
        total = engine.update_with_start(shop(), Cart.add(item), id=f"cart-{customer}", if_active="return")
    except UpdateFailedError as error:
        return str(error.__cause__)
    return f"{total} with {item}"


def use(engine: SyncEngine) -> list[str]:
    replies = [add(engine, "ann", item) for item in ("tea", "unicorn", "cup")]
    cart = engine.handle(shop, "cart-ann")
    cart.update(Cart.order())
    return [*replies, f"ordered: {', '.join(cart.result())}"]


def main() -> None:
    with Engine.open("sqlite:///carts.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
