"""Write golden histories of runs: `python -m tests.golden.exported`, from the root of the repository.

They are documents as `holdfast history export` writes them. As with golden recordings, one that is there is never
written again: every release that comes must read it, and replay it with the code that its run was begun with. There is
one of each workflow for each Python that it was written on, and all are replayed on all.
"""

import platform
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from holdfast import Engine, RunHandle, Worker
from holdfast.errors import RunCancelledError, RunFailedError, UpdateRejectedError
from tests.golden.begun import CALLS, WAITING, WORKFLOWS, Counter, approval, pack, withdrawal

FOLDER: Final = Path(__file__).parent / "histories"
ROOT: Final = Path(__file__).resolve().parent.parent.parent
_LOOK_SECONDS: Final = 0.02
_LATE_SECONDS: Final = 3.0


def main() -> None:
    """Write those that are not there of this Python."""
    FOLDER.mkdir(exist_ok=True)
    minor = ".".join(platform.python_version_tuple()[:2])
    missing = [name for name in CALLS if not list(FOLDER.glob(f"{name}-{minor}.*.json"))]
    if missing:
        anyio.run(_write, missing)


async def _write(names: list[str]) -> None:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/golden.db"
        engine = Engine.open(url, workflows=WORKFLOWS, blobs=f"file://{folder}/blobs")
        engine.core.host = "golden"
        async with engine:
            if "is_late" in names:
                await engine.start(CALLS["is_late"], id="is_late-1")
                await anyio.sleep(_LATE_SECONDS)
            await _write_with(engine, names)


async def _write_with(engine: Engine, names: list[str]) -> None:
    async with Worker(engine, only_queues=["default", "far"]):
        for name in names:
            run = await engine.start(CALLS[name], id=f"{name}-1", if_exists="return")
            await _accompany(name, run)
            path = FOLDER / f"{name}-{platform.python_version()}.json"
            text = (await run.export_history()).to_json()
            path.write_text(text.replace(f"{ROOT}/", ""), encoding="utf-8")
            print(path.name)


async def _accompany(name: str, run: RunHandle[Any]) -> None:
    """Do what else a run needs, and wait until it is where its history is to be written."""
    if name == "is_told":
        await run.signal(approval(True))
        await _until(run, "signal.received")
        await run.signal(withdrawal("no more"))
    if name == "listens":
        await run.signal(approval(False))
        await _until(run, "signal.received")
    if name in {"sleeps", "is_cancelled"}:
        await _until(run, "step.completed")
    if name == "is_cancelled":
        await run.cancel(reason="changed their mind")
    if name == "is_updated":
        await run.update(Counter.add(5))
        with suppress(UpdateRejectedError):
            await run.update(Counter.add(-5))
        await run.update(Counter.add(2))
        await run.update(Counter.finish())
    if name == "is_forked":
        await run.signal(withdrawal("no"))
        await run.result()
        await run.rerun_from(pack)
    if name not in WAITING:
        with suppress(RunFailedError, RunCancelledError):
            await run.result()


async def _until(run: RunHandle[Any], type: str) -> None:
    while all(event.type != type for event in await run.history()):  # noqa: ASYNC110
        await anyio.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main()
