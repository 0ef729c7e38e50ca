"""The pages about testing: their tests pass as readers would run them."""

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast.testing
from holdfast.testing import conformance, pytest_plugin
from tests.integration.examples.pages import DOCS, blocks, table

PLUGIN = ("-p", "no:holdfast", "-p", "holdfast.testing.pytest_plugin", "-p", "no:cacheprovider")
"""The plugin, registered in this environment or not."""


def run_pytest(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGIN, *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the code of a page as a test module."""
    code = [block.code for block in blocks(DOCS / request.param) if block.language == "python"]
    (tmp_path / "test_page.py").write_text("\n".join(code))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", ["howto/test-workflows.md"], indirect=True)
def test_the_tests_of_the_page_of_testing_pass_and_its_golden_history_is_that_which_is_shown(
    page: Path,
) -> None:
    done = run_pytest(page, "--holdfast-update")
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout

    (shown,) = (block.code for block in blocks(DOCS / "howto/test-workflows.md") if block.language == "json")
    assert (page / "golden" / "test_page" / "test_what_an_order_does.json").read_text() == shown


def test_the_page_of_adapters_shows_its_example_word_for_word() -> None:
    shown = [block.code for block in blocks(DOCS / "howto/write-an-adapter.md") if block.language == "python"]
    folder = DOCS / "examples" / "own_adapter"
    assert shown[0] == (folder / "sqlite_blobs.py").read_text()
    _, begin, definition = shown[1].partition("class TestSqliteBlobStore")
    assert begin + definition.rstrip() in (folder / "test_sqlite_blobs.py").read_text()


@pytest.mark.slow
def test_what_is_copied_from_the_page_of_adapters_works_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    store, tests, *_ = (
        block.code for block in blocks(DOCS / "howto/write-an-adapter.md") if block.language == "python"
    )
    (tmp_path / "sqlite_blobs.py").write_text(store)
    (tmp_path / "test_sqlite_blobs.py").write_text(tests)
    done = run_pytest(tmp_path, "-k", "damaged or missing or listed")

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_page_of_adapters_names_every_suite_and_what_it_wants_to_be_told() -> None:
    told: dict[str, str] = {}
    for _, _, suites, wanted in table(DOCS / "howto/write-an-adapter.md", "Write an adapter"):
        told[suites.strip("`")] = wanted
    real: dict[str, type] = {}
    for module in pkgutil.iter_modules(conformance.__path__):
        found = importlib.import_module(f"{conformance.__name__}.{module.name}")
        real.update(
            (f"{module.name}.{name}", one) for name, one in vars(found).items() if name.endswith("Contract")
        )
    assert set(told) == set(real)
    for name, wanted in told.items():
        listed = set(re.findall(r"`(\w+)`", wanted))
        assert _abstract_methods(real[name]) <= listed, name
        assert all(hasattr(real[name], method) for method in listed), name


@pytest.mark.slow
def test_the_tests_of_the_example_of_the_simulator_pass(tmp_path: Path) -> None:
    """Also those that miss the bug; the simulation must find it, and must not report it once fixed."""
    code = blocks(DOCS / "howto/simulate.md")
    (tmp_path / "test_page.py").write_text(
        "\n".join(block.code for block in code if block.language == "python")
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout


def test_the_page_of_the_simulator_shows_its_example_word_for_word() -> None:
    orders, tests, more = (
        block.code for block in blocks(DOCS / "howto/simulate.md") if block.language == "python"
    )
    folder = DOCS / "examples" / "invoices"
    assert orders == (folder / "orders.py").read_text()
    _, begin, definitions = tests.partition("ORDER = ")
    assert begin + definitions in (folder / "test_orders.py").read_text()
    _, begin, definitions = more.partition("def a_printer")
    assert begin + definitions in (folder / "test_orders.py").read_text()


def test_the_page_of_names_for_tests_has_each_of_them() -> None:
    page = DOCS / "reference" / "testing.md"
    assert sorted(row[0].strip("`") for row in table(page, "Names for tests")) == sorted(
        holdfast.testing.__all__
    )
    for name in holdfast.testing.__all__:
        assert getattr(holdfast.testing, name).__doc__

    fixtures = {
        name
        for name, one in vars(pytest_plugin).items()
        if type(one).__name__ == "FixtureFunctionDefinition" and not name.startswith("_")
    }
    assert fixtures
    assert {row[0].strip("`") for row in table(page, "Fixtures")} == fixtures
    parser = pytest.Parser(_ispytest=True)
    pytest_plugin.pytest_addoption(parser)
    options = {name for option in parser.getgroup("holdfast").options for name in option.names()}
    assert {row[0].split("=")[0].strip("`") for row in table(page, "Options")} == options


def _abstract_methods(suite: type) -> set[str]:
    return {name for name in dir(suite) if getattr(getattr(suite, name), "__isabstractmethod__", False)}
