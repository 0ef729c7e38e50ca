"""The findings in the workflows of this repository are intended."""

from pathlib import Path

from holdfast.hosts.devtools.lint.linter import lint

ROOT = Path(__file__).parents[5]


def test_of_the_corpus_only_what_refuses_cancellation_is_found() -> None:
    """The corpus uses every part of asyncio in the usual ways: any other finding would be a false alarm."""
    report = lint([str(ROOT / "tests" / "unit" / "kernel" / "functions" / "corpus.py")])

    assert report.workflows >= 39
    assert [(one.code, one.workflow) for one in report.findings] == [("HF013", "refuses_to_be_cancelled")]


def test_in_the_examples_nothing_is_found() -> None:
    report = lint([str(ROOT / "docs" / "examples")])

    assert (report.findings, report.unreadable) == ((), ())
