"""Hand-written SQL that does the same, a hundred rows to a statement, and nothing around it."""

import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from protocol import Outcome, Work, asked, beside, check, main, marks, timed

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from tests.benchmarks.floors import BATCH, Floor, floor_of, serve

SECONDS_MAX = 10.0


def opened(url: str) -> "closing[Floor]":
    return closing(floor_of(url).connect(url))


def tasks(number: int) -> list[tuple[str, str]]:
    return [(f"task-{place:07}", str(place)) for place in range(number)]


def made(url: str, runs: int = 0) -> None:
    with opened(url) as floor:
        floor.set_up()
        if runs:
            floor.add(tasks(runs))
            floor.freshen()


def stored(url: str, runs: int) -> None:
    with opened(url) as floor:
        check(len(floor.claim(runs + 1)) == runs, "not all were stored")


def submit(url: str, runs: int, threads: int) -> Generator[Work]:
    made(url)
    floors = [floor_of(url).connect(url) for _ in range(threads)]

    def add(place: int) -> None:
        for row in tasks(runs)[place::threads]:
            floors[place].add([row])

    def work() -> Outcome:
        with ThreadPoolExecutor(threads) as pool:
            return timed(runs, lambda: list(pool.map(add, range(threads))))

    yield work
    for floor in floors:
        floor.close()
    stored(url, runs)


def submit_batches(url: str, runs: int, batch: int) -> Generator[Work]:
    made(url)
    rows = tasks(runs)
    with opened(url) as floor:
        yield lambda: timed(runs, lambda: [floor.add(rows[at : at + batch]) for at in range(0, runs, batch)])
    stored(url, runs)


def worker(url: str) -> Generator[Work]:
    with opened(url) as floor:

        def work() -> None:
            while claimed := floor.claim(BATCH):
                floor.complete([(id_, str(int(text) + 1)) for id_, text in claimed])

        yield lambda: timed(0, work)


def drain(url: str, runs: int, at_once: int, workers: int) -> Generator[Work]:
    del at_once, workers
    made(url, runs)
    with beside("worker", url) as one:

        def work() -> None:
            one.go()
            one.outcome()

        yield lambda: timed(runs, work)
    with opened(url) as floor:
        done = [(id_, str(int(text) + 1)) for id_, text in tasks(runs)]
        check(floor.results() == done, "it gave something else")


def steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    made(url)
    names = [id_ for id_, _ in tasks(runs)]
    with opened(url) as floor:

        def work() -> None:
            for at in range(0, runs, at_once):
                mine = names[at : at + at_once]
                for number in range(1, length + 1):
                    rows = [(name, str(number)) for name in mine]
                    check(floor.step("me", number, rows) == len(mine), "the owner has changed")

        yield lambda: timed(runs * length, work)
        check(floor.steps() == runs * length, "not all steps are there")


def long_run(url: str, length: int, ends: int) -> Generator[Work]:
    made(url)
    with opened(url) as floor:

        def work() -> Outcome:
            times = [time.perf_counter()]
            for number in range(1, length + 1):
                check(floor.step("me", number, [("x", str(number))]) == 1, "the owner has changed")
                times.append(time.perf_counter())
            return marks(times, ends=ends)

        yield work
        check(floor.steps() == length, "not all steps are there")


def server(url: str) -> Generator[Work]:
    def work() -> Outcome:
        serve(url)
        return Outcome(0, 0.0)

    yield work


def latency(url: str, times: int) -> Generator[Work]:
    made(url)
    with opened(url) as floor, beside("server", url) as process:
        floor.listen("answered")
        process.go()
        process.line()
        rows = iter(tasks(times + 10))

        def ask(_: int) -> None:
            id_, text = next(rows)
            floor.add([(id_, text)], tell="asked")
            while floor.result(id_) != str(int(text) + 1):
                floor.wait(SECONDS_MAX)

        asked(10, ask)
        yield lambda: asked(times, ask)


if __name__ == "__main__":
    main(submit, submit_batches, drain, steps, latency, long_run, worker, server)
