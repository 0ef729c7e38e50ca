"""A program that forks after it used an engine: each child uses it too, while the parent continues.

`python -m tests.integration.hosts.forking_program URL NAMESPACE CHILDREN` exits with 0 if all got their results.
"""

import os
import sys
import threading
import traceback

from holdfast import Engine, Worker, step, workflow
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.ports.records.run import RunStatus

SECONDS = 30


@step
def add_one(number: int) -> int:
    return number + 1


@workflow
async def adds(number: int) -> int:
    return await add_one(number)


def fork_once(runs: SyncEngine, number: int) -> int:
    """Fork; return the child's process, which starts a run, waits for it and closes the engine."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with runs:
            assert runs.start(adds(number)).result(timeout=SECONDS) == number + 1
            assert runs.run(adds(number)) == number + 1
            with Worker(Engine(runs.core), concurrency=1):
                assert runs.run(adds(-number)) == 1 - number
        runs.core.close()
        code = 0
    except BaseException:  # noqa: BLE001  # the child ends here, whatever it met
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main(url: str, namespace: str, children: int) -> int:
    """Return the number of children that failed."""
    engine = Engine.open(url, workflows=[adds], namespace=namespace)
    stopped = threading.Event()

    def start_runs() -> None:
        while not stopped.is_set():
            engine.sync.run(adds(0))

    with engine.sync as runs, Worker(engine):
        assert runs.run(adds(1)) == 2
        busy = [threading.Thread(target=start_runs) for _ in range(3)]
        for thread in busy:
            thread.start()
        processes = [fork_once(runs, number) for number in range(1, children + 1)]
        failed = [os.waitpid(process, 0)[1] for process in processes]
        stopped.set()
        for thread in busy:
            thread.join()
        assert runs.run(adds(2)) == 3
        statuses = runs.count()
        print(sum(statuses.values()), "runs,", statuses[RunStatus.COMPLETED], "completed")
    return sum(bool(one) for one in failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
