"""Fill the shop's store, and serve it: `make serve`, or `python -m docs.examples.live_demo [--port N]`."""

import argparse
import sys
from pathlib import Path

from docs.examples.live_demo.seed import seed, seed_blocked
from docs.examples.live_demo.shop import STORE

from holdfast.hosts.cli.main import main as holdfast

FOLDER = Path("live-demo")
HINTS = """
A shop on {store}, with a worker. An order of each customer comes in every 15 seconds. Ctrl-C stops it.
In another terminal:

    API=http://localhost:{port}/v1/namespaces/default
    curl "$API/runs?limit=5"                     # the newest runs
    curl "$API/runs?status=failed"               # or running, pending, blocked, ...
    curl $API/runs/refund-1/why                  # it waits for somebody who approves
    curl $API/runs/refund-1/signals/approval -d '{{"message": {{"approved": true, "by": "you"}}}}' \\
        -H 'Content-Type: application/json'
    curl $API/runs/price-1/why                   # it is blocked: the code has changed
    curl -N $API/runs/invoice-1/history -H 'Accept: text/event-stream'
    curl $API/schedules
    curl $API/runs -d '{{"workflow": "order", "input": {{"customer": "you", "items": ["tea"]}}}}' \\
        -H 'Content-Type: application/json' -H 'Prefer: wait=10'
"""


def main() -> int:
    """Start the runs and the server; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.examples.live_demo", description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    port: int = parser.parse_args().port
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    seed_blocked(STORE)
    seed(STORE)
    print(HINTS.format(store=STORE, port=port), flush=True)
    return holdfast(["serve", "docs.examples.live_demo.shop:engine", "--worker", "--port", str(port)])


if __name__ == "__main__":
    sys.exit(main())
