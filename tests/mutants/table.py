"""The results of the hunt as a table, and its place in the documentation."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.hunt import Hunt
from tests.mutants.mutant import ROOT

PAGE: Final = ROOT / "docs" / "explanation" / "how-we-know.md"
_BEGIN: Final = "<!-- mutants: written by `make mutants WRITE=1` -->"
_END: Final = "<!-- end of mutants -->"


def table(hunts: Sequence[Hunt]) -> str:
    """Return the table, in Markdown."""
    lines = [
        "| planted bug | what it does | found at seed | invariant | seeds per minute |",
        "|---|---|---|---|---|",
    ]
    for one in hunts:
        seed = "**survives**" if one.seed is None else str(one.seed)
        by = (
            one.invariant
            if one.is_killed or one.seed is None
            else f"{one.invariant}, which is not an expected one"
        )
        a_minute = round(60 * one.seeds / max(one.seconds, 0.001))
        lines.append(f"| {one.mutant.name} | {one.mutant.breaks} | {seed} | {by} | {a_minute} |")
    return "\n".join(lines)


def summary(hunts: Sequence[Hunt], seconds: float) -> str:
    """Return the summary in a sentence."""
    killed = [one.seed for one in hunts if one.is_killed and one.seed is not None]
    middle = sorted(killed)[len(killed) // 2] if killed else 0
    seeds = sum(one.seeds for one in hunts)
    return (
        f"{len(killed)} of {len(hunts)} found; half of them within {middle} seeds, the last at seed"
        f" {max(killed, default=0)}. {seeds:,} seeds in {seconds / 60:.1f} minutes."
    )


def write(hunts: Sequence[Hunt], seconds: float) -> None:
    """Replace the table in the documentation."""
    text = PAGE.read_text()
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not rest or not after:
        raise SystemExit(f"{PAGE} has no place for the table: it is between {_BEGIN} and {_END}")
    PAGE.write_text(f"{before}{_BEGIN}\n\n{table(hunts)}\n\n{summary(hunts, seconds)}\n\n{_END}{after}")


def written() -> str:
    """Return the table in the documentation."""
    _, _, rest = PAGE.read_text().partition(_BEGIN)
    found, _, _ = rest.partition(_END)
    return found
