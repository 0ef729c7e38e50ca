"""The user of a request is known to the function, its steps and its child runs, and nobody passes an argument."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from holdfast import Engine, SyncEngine, Worker, step, workflow
from holdfast.plugins import BodyCall, FunctionCall, StartCall

user: ContextVar[str] = ContextVar("user", default="nobody")


class UserContext:
    def start(self, call: StartCall) -> StartCall | None:
        return call.with_headers({"user": user.get()}) if call.kind == "run" else None

    @contextmanager
    def function(self, call: FunctionCall | BodyCall) -> Generator[None]:
        token = user.set(call.headers.get("user", "nobody"))
        try:
            yield
        finally:
            user.reset(token)

    body = function


@step(queue="greetings")
def greet(name: str) -> str:
    return f"Hello, {name}, from {user.get()}"


@workflow
async def greet_one(name: str) -> str:
    return await greet(name)


@workflow
async def greet_all(names: list[str]) -> list[str]:
    return [f"sent for {user.get()}", *[await greet_one(name) for name in names]]


WORKFLOWS = (greet_all, greet_one)
INTERCEPTORS = [UserContext()]
QUEUES = ["default", "greetings"]


def use(engine: SyncEngine) -> list[str]:
    token = user.set("ann")  # what the middleware of a web application does
    try:
        return engine.run(greet_all(["bob", "eve"]))
    finally:
        user.reset(token)


def main() -> None:
    engine = Engine.open("sqlite:///greetings.db", workflows=WORKFLOWS, interceptors=INTERCEPTORS)
    with engine.sync as runs, Worker(engine, only_queues=QUEUES):
        print(use(runs))


if __name__ == "__main__":
    main()
