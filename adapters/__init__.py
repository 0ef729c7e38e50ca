"""Adapters: implementations of the ports, one folder per technology. The hooks for `os.fork` are installed here."""

import os
import time
from contextlib import suppress
from typing import Final

from holdfast.ports.process_forks import inherited, pause_all, renew_all, resume_all

PAUSE_SECONDS: Final = 2.0
"""How long a fork waits for objects that must be idle while it takes place."""


def _before() -> None:
    until = time.monotonic() + PAUSE_SECONDS
    pause_all(lambda: max(0.0, until - time.monotonic()))


def _in_child() -> None:
    with suppress(ImportError, AttributeError):  # without ctypes they are finalized at exit
        import ctypes  # here, because only children need it

        # Never freed: the finalizer of a connection or an event loop of the parent would disturb it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited()))
    renew_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=resume_all, after_in_child=_in_child)
