"""Details of runs that wait for a slot."""

from holdfast import Engine, Pipeline, stage
from holdfast.ports.records.job import JobState


@stage(max_concurrency=2)
def translate(page: str) -> str:
    return page.upper()


BOOKS = Pipeline("books", input=str).pipe(translate)


def test_a_job_that_waits_for_a_slot_has_the_limit_in_force_and_that_of_its_plan() -> None:
    with Engine.open("memory://", workflows=[BOOKS]).sync as engine:
        *_, last = [engine.start(BOOKS(page)) for page in ("a", "b", "c")]
        [waiting] = last.details().jobs
        assert waiting.state is JobState.LIMITED
        assert (waiting.slots_used, waiting.slots_in_force, waiting.concurrency_limit) == (2, 2, 2)

        engine.limits.set("stage:books/translate", slots=1)

        [waiting] = last.details().jobs
        assert (waiting.slots_used, waiting.slots_in_force, waiting.concurrency_limit) == (2, 1, 2)
        engine.limits.set("stage:books/translate", slots=3)
        [queued] = last.details().jobs
        assert (queued.state, queued.slots_used, queued.slots_in_force) == (JobState.QUEUED, None, None)
