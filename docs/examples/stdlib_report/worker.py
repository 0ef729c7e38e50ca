"""A worker for the demo, as a process of its own: `python -m docs.examples.stdlib_report.worker STORE`."""

import logging
import sys
import warnings

from docs.examples.stdlib_report.pipeline import stdlib_report

from holdfast import Engine, Worker

CONCURRENCY = 8
LEASE = 2.0
"""Seconds after which a worker that is silent counts as lost. Short, for a demo; the default is 30."""


def main() -> None:
    """Work until SIGTERM comes, or SIGKILL."""
    warnings.simplefilter("ignore")  # what the compiler thinks of the sources is not what the demo is about
    logging.basicConfig(format="          process %(process)d: %(message)s", level=logging.WARNING)
    engine = Engine.open(sys.argv[1], workflows=[stdlib_report])
    Worker(engine, concurrency=CONCURRENCY, lease=LEASE).run()


if __name__ == "__main__":
    main()
