"""A reader of the documentation's pages: links, headings and code blocks."""

import re
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[3]
DOCS: Final = ROOT / "docs"
PAGES: Final = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


@attrs.frozen
class Block:
    """A fenced block of a page. `shown` is the text block right after it, its output."""

    language: str
    code: str
    line: int
    shown: str | None = None


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    result: list[Block] = []
    for index, match in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else None
        follows = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        shown = after[2] if after is not None and follows else None
        result.append(Block(match[1], match[2], text[: match.start(2)].count("\n") + 1, shown))
    return result


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Return the targets of the links of a page."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    plain = (
        re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in _HEADING.findall(prose(page))
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


def table(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    text = page.read_text(encoding="utf-8")
    start = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
    assert start is not None, f"{page} has no heading {heading!r}"
    rows = re.search(r"(?:^\|.*\|$\n?)+", text[start.end() :], re.MULTILINE)
    assert rows is not None, f"there is no table below {heading!r}"
    lines = rows[0].strip().splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in lines]
