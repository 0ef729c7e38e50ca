"""The handlers of the Lambda functions of the stack: `app.on_jobs`, `app.on_timer` and `app.on_dead_letters`."""

import json
import os
from datetime import timedelta
from typing import Any

import boto3

from holdfast import Engine, Pipeline, sleep, stage, step, workflow
from holdfast.adapters.aws.sqs import SqsJobTransport
from holdfast.serverless import cron_handler, dead_letter_handler, queue_handler


@stage
def fetch(url: str) -> str:
    return f"what {url} says"


@stage
def count(text: str) -> int:
    return len(text.split())


@step
async def remind(whom: str) -> str:
    return f"{whom} is reminded"


@workflow
async def reminders(whom: str, days: int) -> list[str]:
    """Remind somebody once a day: no function lasts that long, and the run does."""
    said: list[str] = []
    for _ in range(days):
        said.append(await remind(whom))
        await sleep(timedelta(days=1))
    return said


word_count = Pipeline("word_count", input=str).pipe(fetch).pipe(count)


def database_url() -> str:
    """Return the URL of the database. With DATABASE_SECRET, it is read from Secrets Manager."""
    secret = os.environ.get("DATABASE_SECRET")
    if not secret:
        return os.environ["DATABASE_URL"]
    session: Any = boto3.Session()
    answer = session.client("secretsmanager").get_secret_value(SecretId=secret)
    return str(json.loads(answer["SecretString"])["url"])


engine = Engine.open(
    database_url(),
    workflows=[word_count, reminders],
    migrate=False,  # `holdfast db upgrade` does it, before a release
    blobs=f"s3://{os.environ['BLOBS_BUCKET']}/holdfast",
    transport=SqsJobTransport(os.environ["JOBS_QUEUE_URL"]),
)
JOB_SECONDS = int(os.environ["JOB_SECONDS"])
on_jobs = queue_handler(engine, limit=JOB_SECONDS, rejected_queue=os.environ["REJECTED_QUEUE_URL"])
on_timer = cron_handler(engine, limit=55, job_limit=JOB_SECONDS, retention=timedelta(days=90))
on_dead_letters = dead_letter_handler(engine, rejected_queue=os.environ["REJECTED_QUEUE_URL"])
