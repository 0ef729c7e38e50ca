"""`holdfast lint`."""

import json
from pathlib import Path

import pytest

from holdfast.hosts.cli.exit_codes import Exit
from tests.unit.hosts.cli.conftest import CommandLine

FLOWS = """\
import time
from holdfast import workflow

@workflow
async def flow() -> None:
    time.time()
    hash("a,b%")
"""
AT = "flows.py:6:5: HF001 `time.time` reads the machine's clock, which returns another time in a replay: use holdfast."


@pytest.fixture(autouse=True)
def _flows(holdfast: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOWS)


def test_findings_are_shown_by_place_and_end_with_code_1(holdfast: CommandLine) -> None:
    for named in ([], ["."], ["flows"], ["flows.py"]):
        answer = holdfast("lint", *named)
        assert (answer.code, answer.out.splitlines()[0].startswith(AT)) == (1, True)
        assert len(answer.out.splitlines()) == 2
        assert answer.err == "1 workflow in 1 file: 2 findings\n"


def test_where_nothing_is_found_the_code_is_0(holdfast: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text("from holdfast import workflow\n")
    answer = holdfast("lint", "fine.py")

    assert (answer.code, answer.out, answer.err) == (Exit.OK, "", "0 workflows in 1 file: no findings\n")


def test_findings_are_told_as_json(holdfast: CommandLine) -> None:
    answer = holdfast("lint", "--json")
    assert answer.code == 1
    assert answer.json == holdfast("lint", "--format", "json").json
    document = answer.json
    first, _ = document.pop("findings")
    assert document == {"files": 1, "workflows": 1, "functions": 1, "warnings": [], "unreadable": []}
    assert first == {
        "code": "HF001",
        "title": "Reads the machine's clock",
        "path": "flows.py",
        "line": 6,
        "column": 5,
        "end_line": 6,
        "message": "`time.time` reads the machine's clock, which returns another time in a replay: "
        "use holdfast.now(), or read it in a step",
        "workflow": "flow",
        "through": None,
        "docs": "docs/reference/lint.md#hf001",
    }


def test_findings_are_told_as_annotations(holdfast: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "flows.py").rename(tmp_path / "a,b%.py")
    (tmp_path / "broken:.py").write_text("workflow = (\n")
    answer = holdfast("lint", "--format", "github")

    assert answer.code == Exit.USAGE
    lines = answer.out.splitlines()
    assert lines[0].startswith(
        "::error file=a%2Cb%25.py,line=6,col=5,endLine=6,title=HF001::`time.time` reads the machine's clock, which"
    )
    assert lines[2] == "::error file=broken%3A.py::line 1: '(' was never closed"


def test_what_has_only_warnings_passes(holdfast: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(FLOWS.replace("time.time()", "print()").replace("hash", "print"))
    at = "flows.py:6:5: HF017 warning: `print` writes again in each replay: use `workflow_context().log(...)`"

    answer = holdfast("lint")
    assert (answer.code, answer.out.startswith(at)) == (Exit.OK, True)
    assert answer.err == "1 workflow in 1 file: 2 warnings\n"
    told = holdfast("lint", "--json").json
    assert [one["code"] for one in told["warnings"]] == ["HF017", "HF017"]
    assert told["findings"] == []
    assert holdfast("lint", "--format", "github").out.startswith("::warning file=flows.py,line=6,")
    assert holdfast("lint", "--ignore", "HF017").out == ""


def test_codes_can_be_left_out(holdfast: CommandLine) -> None:
    assert holdfast("lint", "--ignore", "HF001").out.startswith("flows.py:7:5: HF009")
    assert holdfast("lint", "--ignore", "HF001", "--ignore", "hf009").code == Exit.OK


def test_what_cannot_be_read_ends_with_code_2(holdfast: CommandLine, tmp_path: Path) -> None:
    """The other files are checked all the same."""
    (tmp_path / "broken.py").write_text("workflow = (\n")
    answer = holdfast("lint")
    assert (answer.code, len(answer.out.splitlines())) == (Exit.USAGE, 2)
    assert "broken.py: cannot be read: line 1: '(' was never closed" in answer.err
    told = holdfast("lint", "--json")
    assert (told.code, json.dumps(told.json["unreadable"])) == (
        Exit.USAGE,
        '[{"path": "broken.py", "reason": "line 1: \'(\' was never closed"}]',
    )


def test_wrong_usage_is_told(holdfast: CommandLine) -> None:
    for arguments in (
        ["nowhere"],
        ["--ignore", "HF999"],
        ["--json", "--format", "github"],
        ["--format", "xml"],
    ):
        answer = holdfast("lint", *arguments)
        assert (answer.code, answer.out) == (Exit.USAGE, "")
