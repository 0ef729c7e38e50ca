"""Create a schedule, pause and resume it, run it now, make up for past times, and change its input."""

from datetime import UTC, datetime, timedelta

from holdfast import Engine, Every, Schedule, Worker, step, workflow


@step
async def compose(greeting: str, name: str) -> str:
    return f"{greeting}, {name}!"


@workflow
async def greet(name: str) -> str:
    return await compose("Hello", name)


def greetings(name: str) -> Schedule[str]:
    return Schedule("greetings", greet(name), when=Every(timedelta(minutes=2)), overlap="allow")


def main() -> None:
    with Engine.open("sqlite:///schedules.db", workflows=[greet]).sync as engine, Worker(engine):
        schedule = engine.create_schedule(greetings("Ada"))
        schedule.pause(reason="the printer is out of paper")
        now = datetime.now(UTC)
        past = schedule.backfill(now - timedelta(minutes=10), now, overlap="allow")
        schedule.resume()
        schedule.update(greetings("Grace"))
        triggered = schedule.trigger().run_id
        assert triggered is not None
        print([engine.handle(greet, run).result() for run in (*past, triggered)])
        schedule.remove()


if __name__ == "__main__":
    main()
