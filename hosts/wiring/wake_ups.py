"""Requests wake-ups of sleeping jobs from a scheduler after each commit, where no worker runs permanently."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

from holdfast.ports.changes import Change, Delete, DeleteJobs, DeleteJobsOfNode, DeleteRun, Insert, Update
from holdfast.ports.clock import instant, micros
from holdfast.ports.json import canonical
from holdfast.ports.records.job import Job, JobKey, JobState
from holdfast.ports.records.values import Micros
from holdfast.ports.scheduler import Scheduler

AT_ONCE: Final = 40
"""The maximum number of wake-ups requested per commit, those due first. Maintenance wakes the other jobs."""
SIDE_BY_SIDE: Final = 8
"""The maximum number of concurrent requests."""
PAUSE_SECONDS: Final = 5.0
"""Seconds without requests after one has failed, as each commit would wait for the failure."""
KNOWN_MAX: Final = 10_000
"""How many requested wake-ups are remembered, so that they are not requested twice and can be cancelled."""

_log = logging.getLogger("holdfast.wake_ups")


def wake_up_key(namespace: str, job: str) -> str:
    """Return the key of a job's wake-up at the scheduler. It is the same in every process."""
    return f"holdfast/{namespace}/{job}"


class WakeUps:
    """Requests and cancels wake-ups for the changes of commits. Thread-safe; its state is only a cache.

    The wake-up of a sleeping job is a message with the job and its epoch, as the transport carries it. It may be lost,
    duplicated or obsolete: its receiver checks the store. If the job is done or awake early, the process that requested
    its wake-up cancels it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        now: Callable[[], datetime],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._now = now
        self._monotonic = monotonic
        self.renew()

    def renew(self) -> None:
        """Reset the state: no wake-ups are remembered."""
        self._lock = threading.Lock()
        self._known: OrderedDict[JobKey, tuple[str, int, Micros]] = OrderedDict()
        """The namespace, epoch and instant (in microseconds) of each job's wake-up."""
        self._paused_until = float("-inf")

    def follow(self, changes: Sequence[Change]) -> None:
        """Request and cancel wake-ups after a commit. Never raises; maintenance makes up for failed requests."""
        calls = self._calls(changes)
        if len(calls) <= 1:
            for call in calls:
                self._carry_out(call)
            return
        with ThreadPoolExecutor(min(len(calls), SIDE_BY_SIDE), "holdfast-wake-ups") as threads:
            for _ in threads.map(self._carry_out, calls):
                pass

    def _calls(self, changes: Sequence[Change]) -> list[Callable[[], None]]:
        now = micros(self._now())
        sleepers: dict[JobKey, Job] = {}
        awake: dict[JobKey, None] = {}
        with self._lock:
            for change in changes:
                match change:
                    case Insert(Job() as job) | Update(Job() as job) if _sleeps(job):
                        awake.pop(job.key, None)
                        sleepers[job.key] = job
                    case Insert(Job() as job) | Update(Job() as job):
                        sleepers.pop(job.key, None)
                        awake[job.key] = None
                    case Delete(key=JobKey() as key):
                        sleepers.pop(key, None)
                        awake[key] = None
                    case DeleteJobs(run=run) | DeleteJobsOfNode(run=run) | DeleteRun(run=run):
                        awake.update((key, None) for key in self._known if key.run == run)
                    case _:
                        pass
            left = [(key, known) for key in awake if (known := self._known.pop(key, None)) is not None]
            new = [job for job in sleepers.values() if self._is_new(job)]
            new.sort(key=lambda job: job.wake_at or 0)
            for job in new[:AT_ONCE]:
                self._known[job.key] = job.namespace, job.epoch, job.wake_at or 0
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return [
            *(self._scheduling(job) for job in new[:AT_ONCE]),
            *(self._taking_back(key, namespace) for key, (namespace, _, at) in left[:AT_ONCE] if at > now),
        ]

    def _is_new(self, job: Job) -> bool:
        return self._known.get(job.key) != (job.namespace, job.epoch, job.wake_at)

    def _scheduling(self, job: Job) -> Callable[[], None]:
        message = canonical({"epoch": job.epoch, "job_id": job.key.text})
        key, at = wake_up_key(job.namespace, job.key.text), instant(job.wake_at or 0)
        return lambda: self._scheduler.schedule(key, message, at)

    def _taking_back(self, key: JobKey, namespace: str) -> Callable[[], None]:
        return lambda: self._scheduler.cancel(wake_up_key(namespace, key.text))

    def _carry_out(self, call: Callable[[], None]) -> None:
        if self._monotonic() < self._paused_until:
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001  # an error of the scheduler must not fail a stored commit
            was_paused_until, self._paused_until = self._paused_until, self._monotonic() + PAUSE_SECONDS
            if self._monotonic() >= was_paused_until:
                _log.warning(
                    "wake-ups are lost for %s seconds, maintenance wakes the jobs instead: %s",
                    PAUSE_SECONDS,
                    error,
                )


def _sleeps(job: Job) -> bool:
    return job.state is JobState.SLEEPING and job.wake_at is not None
