"""One run for many edits of a document, with the last of them, once no edit has come for a while."""

from datetime import timedelta

from holdfast import Engine, Gather, Worker, step, workflow

SHORT, LONG = timedelta(milliseconds=200), timedelta(minutes=1)


@step
def index(text: str) -> str:
    return f"indexed {text!r}"


@workflow(gather=Gather(by="document", quiet=SHORT, within=LONG))
async def reindex(text: str) -> str:
    return await index(text)


def main() -> None:
    with Engine.open("sqlite:///documents.db", workflows=[reindex]).sync as engine, Worker(engine):
        edits = [engine.start(reindex(text), attributes={"document": "terms"}) for text in ("a", "ab", "abc")]
        print({edit.result() for edit in edits}, len({edit.id for edit in edits}))


if __name__ == "__main__":
    main()
