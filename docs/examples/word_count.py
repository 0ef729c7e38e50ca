"""Counts the words of files: `python docs/examples/word_count.py FILE ...`. Sync code, a map, retries."""

import re
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

from holdfast import Engine, Pipeline, Retry, StageContext, Worker, stage

patiently = Retry(attempts=4, wait=timedelta(milliseconds=50), give_up_on=(FileNotFoundError,))


@stage
def list_files(paths: list[str]) -> list[str]:
    return sorted(paths)


@stage(retry=patiently, timeout=timedelta(seconds=30))
def count(ctx: StageContext, path: str) -> Counter[str]:
    """Count the words of one file. The first attempt fails, as disks and networks sometimes do."""
    if ctx.attempt == 1:
        raise OSError("a glitch")
    ctx.log("reading", path=path, attempt=ctx.attempt)
    return Counter(re.findall(r"[a-z']+", Path(path).read_text(encoding="utf-8").lower()))


@stage
def add_up(counts: list[Counter[str]]) -> list[tuple[str, int]]:
    total = sum(counts, Counter[str]())
    return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:10]


word_count = Pipeline("word-count", input=list[str]).pipe(list_files).map(count, limit=20).pipe(add_up)


def main(paths: list[str], url: str = "sqlite:///word_count.db") -> None:
    with Engine.open(url, workflows=[word_count]).sync as engine, Worker(engine):
        run = engine.start(word_count(paths), attributes={"files": str(len(paths))})
        for word, number in run.result(timeout=timedelta(minutes=1)):
            print(f"{number:7} {word}")


if __name__ == "__main__":
    main(sys.argv[1:])
