"""A worker process whose only body hangs in a thread. Run it with `python stuck_worker.py URL GRACE`."""

import sys
import time

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline


@stage
def stuck(x: int) -> int:
    print("begun", flush=True)
    time.sleep(600)
    return x


STUCK = Pipeline("stuck", input=int).pipe(stuck)


def main() -> None:
    url, grace = sys.argv[1:]
    engine = Engine.open(url, workflows=[STUCK])
    Worker(engine, drain_grace=float(grace)).run()
    engine.core.close()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
