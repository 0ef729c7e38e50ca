"""A FastAPI application that starts runs, shows them and sends them messages. Workers are processes of their own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from shop import Approval, Order, approval, checkout, engine

from holdfast import RunHandle
from holdfast.errors import (
    CommandError,
    InvalidArgumentError,
    InvalidValueError,
    RunNotFoundError,
    SignalRefusedError,
    UnavailableError,
)


class NewOrder(BaseModel):
    """The body of a request that orders something."""

    customer: str = Field(max_length=200)
    cents: int = Field(gt=0)


class Answer(BaseModel):
    """The body of a request that approves an order, or not."""

    approved: bool
    by: str


class Status(BaseModel):
    """Where an order is."""

    id: str
    status: str
    waits_for: list[str] = []
    result: str | None = None


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with engine:  # connects, and closes when the application ends
        yield


app = FastAPI(lifespan=lifespan)
STATUSES: dict[type[Exception], int] = {
    RunNotFoundError: 404,
    SignalRefusedError: 409,  # the order has ended
    CommandError: 409,
    InvalidValueError: 422,
    InvalidArgumentError: 422,  # an id that can't be one, say
    UnavailableError: 503,
}


async def problem(_: Request, error: Exception) -> JSONResponse:
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    headers = {"Retry-After": "5"} if status == 503 else None
    return JSONResponse({"code": getattr(error, "code", ""), "detail": str(error)}, status, headers)


for kind in STATUSES:
    app.add_exception_handler(kind, problem)


async def order_of(id: str) -> RunHandle[str]:
    run = engine.handle(checkout, id)
    await run.info()  # RunNotFoundError
    return run


OrderOf = Annotated[RunHandle[str], Depends(order_of)]


@app.put("/orders/{id}", status_code=202)
async def place(id: str, new: NewOrder) -> Status:
    """Place an order. The same request again, after a lost answer say, gives the order that is there."""
    run = await engine.start(checkout(Order(new.customer, new.cents)), id=id, if_exists="return")
    return Status(id=run.id, status="running")


@app.get("/orders/{id}")
async def show(run: OrderOf) -> Status:
    info = await run.info()
    if info.status == "completed":
        return Status(id=run.id, status=info.status, result=await run.result())
    return Status(id=run.id, status=info.status, waits_for=[reason.text for reason in await run.why()])


@app.post("/orders/{id}/approval", status_code=202)
async def approve(run: OrderOf, answer: Answer) -> Status:
    await run.signal(approval(Approval(answer.approved, answer.by)))
    return Status(id=run.id, status="running")
