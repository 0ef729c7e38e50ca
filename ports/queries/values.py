"""Queries for stored values: plans, inputs and outputs."""

from holdfast.ports.persistence import Query
from holdfast.ports.records.job import JobKey
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Payload, PlanRow
from holdfast.ports.references import Reference
from holdfast.ports.structs import frozen


@frozen
class PlansByFingerprint(Query[tuple[PlanRow, ...]]):
    """Stored plans by fingerprint."""

    fingerprints: tuple[str, ...]


@frozen
class StoredValue:
    """The payloads of a stored value: one, or several for a list, such as the outputs of a map."""

    run: str
    reference: Reference
    payloads: tuple[Payload, ...]


@frozen
class LoadValues(Query[tuple[StoredValue, ...]]):
    """The payloads of references, none of which may be a list.

    A reference to an item yields one payload; one to a map, or to its failures, those of its items in order; one into
    another run what it yields there.
    """

    wanted: tuple[tuple[str, Reference], ...]
    """The key of a run and a reference of that run, for each value."""


@frozen
class LoadedWork:
    """The runs and inputs that attempts need."""

    runs: tuple[Run, ...]
    values: tuple[StoredValue, ...]


@frozen
class LoadWork(Query[LoadedWork]):
    """The runs of jobs, in no order, and values as in `LoadValues`, for a worker that has just leased these jobs.

    The result is as of the leases or later. What does not exist is missing.
    """

    jobs: tuple[tuple[JobKey, int], ...]
    """Key and epoch of each job."""
    wanted: tuple[tuple[str, Reference], ...]
