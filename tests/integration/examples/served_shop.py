"""The server that the page about the client presupposes."""

from collections.abc import Generator
from contextlib import contextmanager

from holdfast import Channel, Engine, Worker, step, workflow
from holdfast.http import asgi_app
from tests.integration.http.api import authenticate
from tests.integration.http.live import served

approval = Channel("approval", bool)


@step
def charge(cents: int) -> str:
    return f"charged {cents}"


@workflow
async def checkout(cents: int) -> str:
    return await charge(cents)


@workflow
async def approved(cents: int) -> str:
    return await charge(cents) if await approval.receive() else "declined"


@contextmanager
def served_shop() -> Generator[str]:
    """Provide the URL of a server with a worker."""
    engine = Engine.open("memory://", workflows=[checkout, approved])
    with engine.sync, Worker(engine), served(asgi_app(engine, authenticate=authenticate)) as url:
        yield url
