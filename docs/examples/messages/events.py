"""Events start runs and wake them: a paid order starts its delivery, which waits until the parcel is packed."""

import time
from datetime import timedelta

import attrs

from holdfast import Engine, SyncEngine, Topic, Trigger, Worker, step, workflow


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


WORKFLOWS = (deliver,)
TRIGGERS = [Trigger("deliver-nz", paid.where(country="nz"), deliver)]


def use(engine: SyncEngine) -> dict[str, str]:
    for order, country in (("a-1", "nz"), ("a-2", "nz"), ("a-3", "fr")):
        engine.publish(paid(Paid(order, country)), id=order)
    engine.publish(packed(Packed("a-1", "parcel 1")))
    engine.publish(packed(Packed("a-2", "parcel 2")))
    while sum(engine.count(workflow=deliver).values()) < 2:
        time.sleep(0.01)  # another process may be starting the second one
    runs = engine.runs(workflow=deliver, oldest_first=True)
    return {run.id: engine.handle(deliver, run.id).result() for run in runs}


def main() -> None:
    engine = Engine.open("sqlite:///events.db", workflows=WORKFLOWS, triggers=TRIGGERS)
    with engine.sync as shop, Worker(shop):
        print(use(shop))


if __name__ == "__main__":
    main()
