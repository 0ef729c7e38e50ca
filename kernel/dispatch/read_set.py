"""The rows that the commands of a batch need, combined."""

import attrs

from holdfast.kernel.search_results import SearchResult
from holdfast.kernel.state import Reads
from holdfast.ports.records.job import JobKey
from holdfast.ports.records.run import RunName
from holdfast.ports.working_set import Tables


@attrs.define
class ReadSet:
    """Keys of rows, by how they are read. `Reads` describes each field."""

    names: set[RunName] = attrs.field(factory=set[RunName])
    runs: set[str] = attrs.field(factory=set[str])
    jobs: set[JobKey] = attrs.field(factory=set[JobKey])
    sessions: set[str] = attrs.field(factory=set[str])
    """Sessions that are read without a lock, whatever a search finds."""
    whole: set[str] = attrs.field(factory=set[str])
    """Runs that are read whole, with all jobs and recorded results, for a repair."""
    whole_names: set[RunName] = attrs.field(factory=set[RunName])
    with_jobs: set[str] = attrs.field(factory=set[str])
    driven: set[str | RunName] = attrs.field(factory=set[str | RunName])
    past: set[RunName] = attrs.field(factory=set[RunName])
    run_remains: set[RunName] = attrs.field(factory=set[RunName])
    seen: set[JobKey] = attrs.field(factory=set[JobKey])
    leader_leases: set[str] = attrs.field(factory=set[str])
    exhausted: bool = False

    def add(self, reads: Reads) -> None:
        """Add the needs of a command, except those that depend on its search."""
        if reads.names:
            self.names.update(reads.names)
        if reads.whole_names:
            self.whole_names.update(reads.names)
        if reads.drivers:
            self.driven.update(reads.runs)
            self.driven.update(reads.names)
        if reads.past_names:
            self.past.update(reads.names)
        if reads.run_remains:
            self.run_remains.update(reads.names)
        if reads.runs:
            self.runs.update(reads.runs)
        if reads.jobs:
            self.jobs.update(reads.jobs)
        if reads.unlocked_jobs:
            self.seen.update(reads.unlocked_jobs)
        if reads.leader_leases:
            self.leader_leases.update(reads.leader_leases)
        if reads.sessions and reads.search is None and not reads.locks_sessions:
            self.sessions.update(reads.sessions)
        if reads.whole_runs:
            self.with_jobs.update(reads.runs)
        self.exhausted |= reads.exhausted

    def add_found(self, reads: Reads, found: SearchResult, tables: Tables) -> None:
        """Add the rows that a search found by key alone; `tables` has the others already."""
        if reads.found_whole:
            self.whole.update(found.runs)
        else:
            self.runs.update(found.runs)
        self.jobs.update(key for key in found.jobs if tables.job(key) is None)
        if reads.runs_of_found:
            runs = {key.run for key in found.jobs}
            self.runs |= runs
            self.driven |= runs
