"""All steps on one file run on one worker: any worker takes the file, and goes on in a queue of its own."""

import tempfile
import uuid
from hashlib import sha256
from pathlib import Path

from holdfast import Engine, Worker, start_child, step, workflow

OWN_QUEUE = f"files-{uuid.uuid4().hex}"


@step
def choose_queue() -> str:
    return OWN_QUEUE


@step
def download(url: str) -> Path:
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write(f"the body of {url}")
    return Path(file.name)


@step
def checksum(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


@step
def remove(file: Path) -> None:
    file.unlink()


@workflow
async def process_here(url: str) -> str:
    file = await download(url)
    try:
        return await checksum(file)
    finally:
        await remove(file)


@workflow
async def process(url: str) -> str:
    child = await start_child(process_here(url), queue=await choose_queue())
    return await child.result()


def main() -> None:
    with (
        Engine.open("sqlite:///files.db", workflows=[process, process_here]).sync as engine,
        Worker(engine, only_queues=["default", OWN_QUEUE]),
    ):
        print(engine.run(process("https://example.org"))[:8])


if __name__ == "__main__":
    main()
