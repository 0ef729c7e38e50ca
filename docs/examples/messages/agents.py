"""Two agents work together: a writer asks a critic what is missing until nothing is, and then releases the critic."""

from dataclasses import dataclass

from holdfast import Channel, Engine, SyncEngine, Worker, expose, step, update, workflow
from holdfast.workflows import signal_run, update_run

released = Channel("released", str)


@step
def add(text: str, missing: str) -> str:  # here, and below, a call of a model
    return f"{text} {missing}".strip()


@step
def find_missing(text: str) -> str | None:
    return next((word for word in ("who", "what", "why") if word not in text.split()), None)


@dataclass
class Critic:
    reviews: int = 0

    @update
    async def review(self, text: str) -> str | None:
        missing = await find_missing(text)
        self.reviews += 1
        return missing


@workflow
async def critic() -> str:
    state = expose(Critic())
    message = await released.receive_message()
    return f"{state.reviews} reviews for {message.sender}: {message.value}"


@workflow
async def writer(reviewer: str) -> str:
    text = ""
    while missing := await update_run(reviewer, Critic.review(text)):
        text = await add(text, missing)
    await signal_run(reviewer, released("thank you"))
    return text


WORKFLOWS = (critic, writer)


def use(engine: SyncEngine) -> list[str]:
    reviewer = engine.start(critic(), id="critic")
    return [engine.run(writer("critic"), id="writer"), reviewer.result()]


def main() -> None:
    with Engine.open("sqlite:///agents.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
