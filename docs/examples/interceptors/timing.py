"""Metrics and logging: how long each body takes and how it ends, and whose body a line of a log comes from."""

import logging
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from holdfast import BodyCall

running: ContextVar[str] = ContextVar("running", default="-")
"""Which run and stage the code belongs to that asks: a filter of the `logging` module can put it into every line."""

_log = logging.getLogger("timing")


class Timing:
    """Counts bodies by stage and how they ended, and logs how long each took."""

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def body(self, call: BodyCall) -> Generator[None]:
        """Measure one body. Called on the event loop, so nothing here may block."""
        token = running.set(f"{call.run_id}/{call.stage}")
        began = time.perf_counter()
        ended = "completed"
        try:
            yield
        except BaseException as error:
            ended = type(error).__name__
            raise
        finally:
            running.reset(token)
            self.ended[call.stage, ended] += 1
            seconds = time.perf_counter() - began
            _log.info("%s, attempt %s: %s after %.3f s", call.stage, call.attempt, ended, seconds)
