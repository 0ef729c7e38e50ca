"""Errors of databases that are tried again. Each database translates those of its driver (`Link`)."""

from typing import Final

from holdfast.ports.errors import UnavailableError

SETUP_HINT: Final = "run `holdfast db upgrade` with this version of Holdfast"


class TransientError(UnavailableError):
    """The database could not do it now; a retry may succeed."""


class StatementStoppedError(TransientError):
    """The database stopped a statement: it took too long, or was cancelled."""


class DiskFullError(TransientError):
    """The database's disk is full; a retry succeeds once there is free space."""
