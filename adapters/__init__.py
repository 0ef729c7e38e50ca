"""One folder for each real thing behind a port. The hooks of `os.fork` are installed here, for all of them."""

import os
import time
from contextlib import suppress
from typing import Final

from holdfast.ports.process_forks import inherited, pause_all, renew_all, resume_all

PAUSE_SECONDS: Final = 2.0
"""How long a fork waits for what is under way in its process and must not be when it forks."""


def _before() -> None:
    until = time.monotonic() + PAUSE_SECONDS
    pause_all(lambda: max(0.0, until - time.monotonic()))


def _in_child() -> None:
    with suppress(ImportError, AttributeError):  # a Python without ctypes tidies up when it ends
        import ctypes  # only children need it

        # It is never taken apart: what tidies up after a connection or a loop of the parent's would disturb that.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited()))
    renew_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=resume_all, after_in_child=_in_child)
