"""The warning for a child workflow that no engine of the program lists."""

from pathlib import Path

import pytest

from holdfast.hosts.devtools.lint.linter import lint

CHILDREN = """
from holdfast import Engine, Pipeline, stage, start_child, workflow


@workflow
async def ship(order: int) -> int:
    return order


@workflow
async def sell(order: int) -> int:
    child = await start_child(ship(order))
    return await child.result()


@workflow
async def resell(order: int) -> int:
    return await ship(order)
"""


def warned(
    folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str, **files: str
) -> list[tuple[str, int, str]]:
    monkeypatch.chdir(folder)
    for name, text in {"shop": CHILDREN + engine, **files}.items():
        (folder / f"{name}.py").write_text(text)
    report = lint(["."])
    assert report.findings == ()
    return [(one.code, one.line, one.workflow) for one in report.warnings]


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("engine = Engine.open('memory://', workflows=[sell])", [("HF018", 12, "sell")]),
        (
            "engine = Engine.open('memory://', workflows=[sell, resell])",
            [("HF018", 12, "sell"), ("HF018", 18, "resell")],
        ),
        ("engine = Engine.open('memory://', workflows=(sell, ship))", []),
        (
            "a = Engine.open('memory://', workflows=[sell])\nb = Engine.open('memory://', workflows=[ship])",
            [],
        ),
        ("engine = Engine.open('memory://', workflows=[sell, *more])", []),
        ("engine = Engine.open('memory://', workflows=WORKFLOWS)", []),
        ("engine = Engine.open('memory://', **settings)", []),
        ("", []),
    ],
    ids=["missing", "two", "there", "elsewhere", "starred", "by name", "by dict", "no engine"],
)
def test_a_child_that_no_engine_has_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, expected: list[tuple[str, int, str]]
) -> None:
    assert warned(tmp_path, monkeypatch, engine) == expected


def test_an_engine_in_another_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = "from holdfast import Engine\nfrom shop import sell\nengine = Engine.open('memory://', workflows=[sell])\n"
    assert warned(tmp_path, monkeypatch, "", main=main) == [("HF018", 12, "sell")]
