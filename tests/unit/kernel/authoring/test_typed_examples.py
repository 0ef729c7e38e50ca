"""The examples for the type checkers also run."""

import asyncio
import importlib
from typing import Any

import pytest

from holdfast.kernel.authoring import Pipeline
from tests.typing import documents


def test_what_the_checkers_accept_can_be_defined() -> None:
    importlib.import_module("tests.typing.ok")


def test_the_example_runs_by_hand() -> None:
    found = asyncio.run(documents.discover(None))
    counts = [asyncio.run(documents.count_pages(document)) for document in found]

    assert counts == [5, 5]


@pytest.mark.parametrize(
    ("pipeline", "stages"),
    [
        (documents.analyse, ["extract", "summarise", "index", "translate", "publish"]),
        (documents.nightly, ["discover", "count_pages", "total"]),
    ],
    ids=["analyse", "nightly"],
)
def test_the_plans_name_the_stages_in_their_order(pipeline: Pipeline[Any, object], stages: list[str]) -> None:
    assert list(pipeline.plan().nodes) == stages
