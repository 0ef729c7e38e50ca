"""APScheduler: jobs in a table, whose functions run in threads of the scheduler's process."""

import time
from collections.abc import Generator
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from protocol import Work, fired, instant_ahead, main

SEEN: list[float] = []


def note() -> None:
    SEEN.append(time.time())


def schedules(url: str, due: int, others: int) -> Generator[Work]:
    store = SQLAlchemyJobStore(url.replace("postgresql://", "postgresql+psycopg://"))
    scheduler = BackgroundScheduler(
        jobstores={"default": store}, executors={"default": ThreadPoolExecutor(64)}, timezone=UTC
    )
    scheduler.start(paused=True)
    options = {"misfire_grace_time": None, "max_instances": 1, "coalesce": True}
    for number in range(others):
        scheduler.add_job(note, "cron", month=1, day=1, id=f"other-{number}", **options)
    at = instant_ahead(10 + due / 100)
    first = datetime.fromtimestamp(at, UTC)
    for number in range(due):
        scheduler.add_job(note, "interval", hours=1, next_run_time=first, id=f"due-{number}", **options)
    scheduler.resume()
    yield lambda: fired(SEEN, due, at)


if __name__ == "__main__":
    main(schedules)
