"""Answers to the queries about workers and queues, from plain dictionaries."""

from collections import Counter
from itertools import groupby, islice

from holdfast.ports.queries.workers import (
    COUNTED_MAX,
    HeldJob,
    HeldJobs,
    ListWorkers,
    QueueContents,
    QueueLine,
    QueueLines,
    RegisteredSession,
)
from holdfast.ports.records.job import JobState, waits_since
from holdfast.ports.records.session import SessionState
from holdfast.ports.working_set import Tables


def workers_listed(tables: Tables, query: ListWorkers) -> tuple[RegisteredSession, ...]:
    """Answer `ListWorkers`."""
    found = [
        RegisteredSession(session, row)
        for row in tables.registrations.values()
        if row.namespace == query.namespace and row.session > query.after
        if (session := tables.sessions.get(row.session)) is not None and session.state is SessionState.OPEN
    ]
    return tuple(sorted(found, key=lambda one: one.session.id)[: max(0, query.limit)])


def held_jobs(tables: Tables, query: HeldJobs) -> tuple[HeldJob, ...]:
    """Answer `HeldJobs`."""
    wanted = set(query.sessions)
    held = [
        HeldJob(job, run.id, run.generation)
        for job in tables.all_jobs()
        if job.state is JobState.LEASED and job.session in wanted
        if (run := tables.runs.get(job.run)) is not None
    ]
    held.sort(key=lambda one: (one.job.session or "", one.job.key))
    by_session = groupby(held, key=lambda one: one.job.session)
    return tuple(one for _, jobs in by_session for one in islice(jobs, max(0, query.limit)))


def queue_lines(tables: Tables, query: QueueLines) -> QueueContents:
    """Answer `QueueLines`."""
    counts: dict[JobState, Counter[tuple[str, str]]] = {
        state: Counter() for state in (JobState.QUEUED, JobState.LEASED, JobState.SLEEPING)
    }
    first: dict[tuple[str, str], tuple[int, str, int]] = {}
    since: dict[tuple[str, str], int] = {}
    leased = 0
    for job in tables.all_jobs():
        leased += job.state is JobState.LEASED
        if job.namespace != query.namespace or job.state not in counts:
            continue
        line = (job.queue, job.definition)
        counts[job.state][line] += 1
        place = (job.queue_position, job.run, job.number)
        if job.state is JobState.QUEUED and (line not in first or place < first[line]):
            first[line], since[line] = place, waits_since(job.queue_position, job.priority)
    is_partial = leased > COUNTED_MAX
    for state in (JobState.QUEUED, JobState.SLEEPING):
        lines = sorted(counts[state])
        is_partial = is_partial or len(lines) > query.limit
        for line in lines[max(0, query.limit) :]:
            del counts[state][line]
    found = sorted({line for of_state in counts.values() for line in of_state})
    return QueueContents(
        lines=tuple(
            QueueLine(
                queue=line[0],
                definition=line[1],
                queued=min(counts[JobState.QUEUED][line], COUNTED_MAX),
                running=counts[JobState.LEASED][line],
                sleeping=min(counts[JobState.SLEEPING][line], COUNTED_MAX),
                since=since[line] if counts[JobState.QUEUED][line] else None,
            )
            for line in found
        ),
        is_partial=is_partial,
    )
