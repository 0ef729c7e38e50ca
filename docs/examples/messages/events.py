"""Events start runs and wake them: a paid order starts its delivery, which waits until the parcel is packed."""

from datetime import timedelta

import attrs

from holdfast import Engine, Topic, Trigger, Worker, step, workflow


@attrs.frozen
class Paid:
    order: str
    country: str


@attrs.frozen
class Packed:
    order: str
    parcel: str


paid = Topic("order.paid", Paid, keys=("order", "country"))
packed = Topic("parcel.packed", Packed, keys=("order",))


@step
def hand_over(parcel: str) -> str:
    return f"{parcel} is on its way"


@workflow
async def deliver(event: Paid) -> str:
    found = await packed.where(order=event.order).receive(timeout=timedelta(days=3))
    return await hand_over(found.parcel)


def main() -> None:
    engine = Engine.open(
        "sqlite:///events.db",
        workflows=[deliver],
        triggers=[Trigger("deliver-nz", paid.where(country="nz"), deliver)],
    )
    with engine.sync as shop, Worker(shop):
        for order, country in (("a-1", "nz"), ("a-2", "nz"), ("a-3", "fr")):
            shop.publish(paid(Paid(order, country)), id=order)
        shop.publish(packed(Packed("a-1", "parcel 1")))
        shop.publish(packed(Packed("a-2", "parcel 2")))
        for run in shop.runs(workflow=deliver, oldest_first=True):
            print(run.id, shop.handle(deliver, run.id).result())


if __name__ == "__main__":
    main()
