"""The report of a failed simulation."""

import re
from collections.abc import Iterator

from holdfast.testing.simulation.seeds import SeedOutcome
from holdfast.testing.simulation.shrinker import Shrunk

LINES_MAX = 150
_ALWAYS = re.compile(r" (FAULT|CRASHED|starts|ends|DID|HEALING|\d+\.\d+ !)|^\S+ !")
_KEY = re.compile(r"[0-9A-Z]{26}")


def report(outcome: SeedOutcome, shrunk: Shrunk | None = None) -> Iterator[str]:
    """Yield the lines of a report: the violations, the faults of the shrunk schedule, and a timeline."""
    yield f"seed {outcome.seed}: {outcome.exit.name}"
    yield from (f"  {line}" for line in outcome.found)
    last = outcome if shrunk is None else shrunk.outcome
    if shrunk is not None:
        yield f"  shrunk from {len(outcome.fired)} faults to {len(last.fired)}, in {shrunk.tries} attempts:"
        yield from (f"    {one.process} at point {one.point}: {one.kind}" for one in last.fired)
        yield from (f"  {line}" for line in last.found)
    yield "timeline of faults and of the records named above (virtual seconds, process, event):"
    yield from (f"  {line}" for line in timeline(last))


def timeline(outcome: SeedOutcome) -> list[str]:
    """Return the last lines of a trace that are about faults or about what the violations name."""
    named = {key[-6:] for line in outcome.found for key in _KEY.findall(line)}
    lines = [
        line
        for line in outcome.trace
        if _ALWAYS.search(line) or (" outbox-head " not in line and any(name in line for name in named))
    ]
    return lines[-LINES_MAX:]
