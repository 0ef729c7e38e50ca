"""A trip: two bookings side by side, a wait, a mail. Kill the worker that carries it out wherever you like."""

import asyncio
import time
from datetime import timedelta

from holdfast import Engine, Retry, sleep, step, step_context, workflow


@step(retry=Retry(attempts=5, wait=timedelta(seconds=1)))
def book_hotel(city: str, *, nights: int) -> str:  # not async: it has a thread
    print(f"looking for a hotel in {city}, try {step_context().attempt}", flush=True)
    time.sleep(1)
    if step_context().attempt == 1:
        raise ConnectionError("the hotel does not answer")
    return f"{nights} nights in {city}"


@step
async def book_flight(city: str) -> str:
    print(f"looking for a flight to {city}", flush=True)
    await asyncio.sleep(4)  # in a step this is an ordinary sleep
    return f"a flight to {city}"


@step
async def mail(text: str) -> None:
    print(f"mail: {text}", flush=True)


@workflow
async def trip(city: str, *, nights: int = 2, wait: int = 20) -> list[str]:
    hotel, flight = await asyncio.gather(book_hotel(city, nights=nights), book_flight(city))
    await mail(f"We have booked {hotel} and {flight}.")
    await sleep(timedelta(seconds=wait))  # or days: no worker is needed meanwhile
    await mail("Pack your bags!")
    return [hotel, flight]


engine = Engine.open("sqlite:///trip.db", workflows=[trip])
