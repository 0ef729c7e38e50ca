"""Write the diagrams of states into the documentation, from the tables of the kernel: `python -m tools.states`.

With `--check` it writes nothing, and fails if the page is not as the tables say.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.kernel.runs.transitions import (
    JOB_TRANSITIONS,
    RUN_TRANSITIONS,
    SESSION_TRANSITIONS,
    STREAM_TRANSITIONS,
    State,
    Transitions,
)

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "architecture.md"
LABELS_MAX: Final = 12
"""The most arrows with texts: those of more would lie on each other. A table below the diagram has them instead."""

_COMMAND: Final = re.compile(r"\b[a-z]+(?:_[a-z]+)*\.[a-z_]+\b")


def page_with_diagrams(page: str) -> str:
    """Return the page with the parts that are made from the tables. ValueError if it has no place for one."""
    parts = {
        "runs": part(RUN_TRANSITIONS),
        "jobs": part(JOB_TRANSITIONS),
        "sessions": part(SESSION_TRANSITIONS),
        "streams": part(STREAM_TRANSITIONS),
    }
    for name, text in parts.items():
        before, begin, rest = page.partition(
            f"<!-- states of {name}: written by `python -m tools.states` -->\n"
        )
        _, end, after = rest.partition(f"<!-- end of states of {name} -->")
        if not (begin and end):
            raise ValueError(f"the page must have one place for the states of {name}")
        page = f"{before}{begin}\n{text}\n\n{end}{after}"
    return page


def part(table: Transitions[State]) -> str:
    """Return the diagram of a table, its states and its arrows, as Markdown."""
    is_labelled = len(list(table.arrows())) <= LABELS_MAX
    parts = [_diagram(table, is_labelled=is_labelled), _legend(table)]
    if not is_labelled:
        parts.append(_arrow_table(table))
    return "\n\n".join("\n".join(lines) for lines in parts)


def _diagram(table: Transitions[State], *, is_labelled: bool) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    for before, after, text in table.arrows():
        # A semicolon ends a statement of Mermaid.
        label = ": " + text.replace(";", ",") if is_labelled else ""
        yield f"    {before or '[*]'} --> {after or '[*]'}{label}"
    yield "```"


def _legend(table: Transitions[State]) -> Iterator[str]:
    yield "| state | meaning |"
    yield "|---|---|"
    for state, meaning in table.states.items():
        yield f"| `{state}` | {meaning} |"


def _arrow_table(table: Transitions[State]) -> Iterator[str]:
    """Yield one row for all arrows that lead to one state for the same reason."""
    rows: dict[tuple[str | None, str], list[str | None]] = {}
    for before, after, text in table.arrows():
        rows.setdefault((after, text), []).append(before)
    order: list[str | None] = [*(state.value for state in table.states), None]
    yield "| from | to | when |"
    yield "|---|---|---|"
    for (after, text), sources in sorted(rows.items(), key=lambda row: order.index(row[0][0])):
        names = ", ".join("(new)" if before is None else f"`{before}`" for before in sources)
        target = "(deleted)" if after is None else f"`{after}`"
        reason = _COMMAND.sub(r"`\g<0>`", text)
        yield f"| {names} | {target} | {reason} |"


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    made = page_with_diagrams(page)
    if "--check" in arguments:
        if made != page:
            print(f"{PAGE} is not as the tables of states say: run `python -m tools.states`", file=sys.stderr)
        return int(made != page)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
