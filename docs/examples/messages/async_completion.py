"""Another system does the work: it gets a token, and completes or fails the call later, from any process."""

from datetime import timedelta

from holdfast import Engine, SyncEngine, Worker, publish, step, workflow
from holdfast.errors import CompletionFailedError
from holdfast.workflows import new_completion


@step
def file_away(scan: str) -> str:
    return f"{scan} is filed"


@workflow
async def scan_letter() -> str:
    scan = await new_completion(str)
    publish("token", scan.token)
    try:
        return await file_away(await scan.result(timeout=timedelta(days=14)))
    except CompletionFailedError as error:
        return f"not scanned: {error}"


WORKFLOWS = (scan_letter,)


def use(engine: SyncEngine) -> list[str]:
    letters = [engine.start(scan_letter()) for _ in range(2)]
    first, second = (letter.wait_for_published("token", str) for letter in letters)
    assert first is not None
    assert second is not None
    engine.complete(first, "letter.pdf")
    engine.complete(first, "letter.pdf")  # repeated after a lost answer: nothing happens twice
    engine.fail_completion(second, "the paper is torn")
    return [letter.result() for letter in letters]


def main() -> None:
    with Engine.open("sqlite:///letters.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
