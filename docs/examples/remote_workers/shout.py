"""Runs the step `shout` for a server: `HOLDFAST_SERVER=https://host HOLDFAST_KEY=... python shout.py`."""

import os

from holdfast import step
from holdfast.remote import RemoteWorker


@step(queue="tools")
def shout(text: str) -> str:
    return text.upper()


if __name__ == "__main__":
    RemoteWorker(os.environ["HOLDFAST_SERVER"], os.environ["HOLDFAST_KEY"], steps=[shout]).run()
