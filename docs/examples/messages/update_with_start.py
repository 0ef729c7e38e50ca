"""One call starts a booking and returns as soon as the seat is reserved; the run goes on and sends the ticket."""

import asyncio
from dataclasses import dataclass, field

from holdfast import Engine, SyncEngine, Worker, expose, step, update, workflow
from holdfast.errors import UpdateFailedError
from holdfast.workflows import CancelRun


@step
def reserve(seat: str) -> str | None:
    return f"reservation of {seat}" if seat.startswith("A") else None


@step
def send_ticket(reservation: str) -> str:
    return f"ticket for the {reservation}"


@dataclass
class Booking:
    outcome: asyncio.Future[str] = field(default_factory=asyncio.Future[str])

    @update
    async def reserved(self) -> str:
        return await self.outcome


@workflow
async def book(seat: str) -> str:
    booking = expose(Booking())
    reservation = await reserve(seat)
    if reservation is None:
        booking.outcome.set_exception(ValueError(f"seat {seat} does not exist"))
        raise CancelRun("no reservation")
    booking.outcome.set_result(reservation)
    return await send_ticket(reservation)


WORKFLOWS = (book,)


def use(engine: SyncEngine) -> list[str]:
    seen = [engine.update_with_start(book("A1"), Booking.reserved(), id="booking-1")]
    seen.append(engine.handle(book, "booking-1").result())
    try:
        engine.update_with_start(book("Z9"), Booking.reserved(), id="booking-2")
    except UpdateFailedError as error:
        seen.append(str(error.__cause__))
    return seen


def main() -> None:
    with Engine.open("sqlite:///bookings.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
