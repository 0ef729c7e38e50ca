"""Metrics and logging: how long each body takes and how it ends, and whose body a line of a log comes from."""

import logging
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from holdfast.plugins import BodyCall

running: ContextVar[str] = ContextVar("running", default="-")
"""Which run, and stage or step, the code that asks belongs to: a filter of `logging` can put it into every line."""

_log = logging.getLogger("timing")


class Timing:
    """Counts bodies by stage, or by step, and how they ended, and logs how long each took."""

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def body(self, call: BodyCall) -> Generator[None]:
        """Measure one body. Called on the event loop, so nothing here may block."""
        name = call.stage if call.step is None else f"{call.stage}/{call.step}"
        token = running.set(f"{call.run_id}/{name}")
        began = time.perf_counter()
        ended = "completed"
        try:
            yield
        except BaseException as error:
            ended = type(error).__name__
            raise
        finally:
            running.reset(token)
            self.ended[name, ended] += 1
            seconds = time.perf_counter() - began
            _log.info("%s, attempt %s: %s after %.3f s", name, call.attempt, ended, seconds)
