"""Comments that suppress findings: `# noqa: HF001`, `# holdfast: noqa`."""

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from holdfast.hosts.devtools.lint.findings import Finding
from holdfast.hosts.devtools.lint.rules import RULES, UNKNOWN_CODE

_COMMENT: Final = re.compile(
    r"#\s*(?P<ours>holdfast:\s*)?noqa(?![\w-])(?P<codes>\s*:\s*(?P<list>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"[A-Z]+[0-9]+", re.IGNORECASE)
_OURS: Final = re.compile(r"HF[0-9]+")


@attrs.frozen
class Suppression:
    """The effect of one suppression comment."""

    codes: frozenset[str] | None
    """The suppressed codes; None suppresses all."""
    unknown: tuple[tuple[int, str], ...] = ()
    """Codes in the comment that do not exist, each with its column."""


def read_suppressions(source: bytes) -> Mapping[int, Suppression]:
    """Return the suppressions of a file, by line."""
    if b"noqa" not in source.lower():
        return {}
    return {
        line: quiet
        for line, column, text in _comments(source)
        for found in _COMMENT.finditer(text)
        if (quiet := _quiet(found, column)) is not None
    }


def is_suppressed(finding: Finding, quiet: Mapping[int, Suppression]) -> bool:
    """Return whether a comment suppresses a finding. Findings about unknown codes can't be suppressed."""
    if finding.code == UNKNOWN_CODE or not quiet:
        return False
    lines = (quiet.get(line) for line in range(finding.line, finding.end_line + 1))
    return any(one and (one.codes is None or finding.code in one.codes) for one in lines)


def unknown_codes(path: str, quiet: Mapping[int, Suppression]) -> Iterator[Finding]:
    """Yield a finding for each code of the linter in a comment that does not exist."""
    for line, one in quiet.items():
        for column, code in one.unknown:
            yield Finding(
                path=path,
                line=line,
                column=column,
                end_line=line,
                code=UNKNOWN_CODE,
                text=f"holdfast lint has no code {code}",
            )


def _quiet(found: re.Match[str], column: int) -> Suppression | None:
    if found["list"] is None:
        # Like other linters, read a colon without codes as "all".
        return Suppression(None)
    named = [(column + one.start() + 1, one[0].upper()) for one in _named(found)]
    ours = [(at, code) for at, code in named if found["ours"] or _OURS.fullmatch(code)]
    if not ours:
        return None
    unknown = tuple((at, code) for at, code in ours if code not in RULES)
    return Suppression(frozenset(code for _, code in ours), unknown)


def _named(found: re.Match[str]) -> Iterator[re.Match[str]]:
    return _CODE.finditer(found.string, found.start("list"), found.end("list"))


def _comments(source: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the line, column and text of each comment, up to the first syntax error."""
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.start[1], token.string
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
        return
