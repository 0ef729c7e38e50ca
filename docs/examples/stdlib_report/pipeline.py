"""The pipeline: discover, measure each file, rank and graph at the same time, report."""

import os
from datetime import timedelta
from pathlib import Path

from docs.examples.stdlib_report.measure import find_sources, measure
from docs.examples.stdlib_report.model import ImportGraph, Library, Module, Ranking, SourceFile
from docs.examples.stdlib_report.report import render
from docs.examples.stdlib_report.summarise import build_graph, rank_modules

from holdfast import Pipeline, Retry, StageContext, stage


@stage
def discover(ctx: StageContext, library: Library) -> list[SourceFile]:
    """Find the source files."""
    witness(ctx)
    files = find_sources(Path(library.root))
    if not files:
        raise FileNotFoundError(f"no Python sources in {library.root}")
    return files[: library.limit or None]


@stage(retry=Retry(attempts=3, wait=timedelta(milliseconds=200), give_up_on=(SyntaxError,)))
def analyse(ctx: StageContext, file: SourceFile) -> Module:
    """Measure one file."""
    witness(ctx)
    return measure(file)


@stage
def rank(ctx: StageContext, modules: list[Module]) -> Ranking:
    """Find the hardest functions."""
    witness(ctx)
    return rank_modules(modules)


@stage
def graph(ctx: StageContext, modules: list[Module]) -> ImportGraph:
    """Find out who imports whom."""
    witness(ctx)
    return build_graph(modules)


@stage
def report(ctx: StageContext, ranking: Ranking, imports: ImportGraph) -> str:
    """Write the page. It is the result of the run; being large, it goes to the blob store."""
    witness(ctx)
    return render(ranking, imports)


stdlib_report = (
    Pipeline("stdlib-report", input=Library).pipe(discover).map(analyse).parallel(rank, graph).pipe(report)
)


def witness(ctx: StageContext) -> None:
    """Add a line to the file that HOLDFAST_DEMO_LOG names, if it does: the proof that this body has started.

    One write to a file that was opened for appending is never mixed up with another's, nor lost when the process
    is killed the moment after.
    """
    path = os.environ.get("HOLDFAST_DEMO_LOG")
    if path:
        item = "-" if ctx.item is None else str(ctx.item)
        line = f"{ctx.stage} {item} {ctx.attempt} {os.getpid()}\n"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)
