"""The linter on arbitrary files: it ends, and reports what it could not read."""

import ast
import json
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.hosts.devtools.lint.files import find_files
from holdfast.hosts.devtools.lint.function_rules import FunctionChecker
from holdfast.hosts.devtools.lint.linter import lint
from holdfast.hosts.devtools.lint.name_resolution import Origins
from holdfast.hosts.devtools.lint.program import Program
from holdfast.hosts.devtools.lint.rules import RULES
from tests.unit.hosts.devtools.lint.conftest import HEAD, Lint, codes

STDLIB = Path(sysconfig.get_paths()["stdlib"])
NAMES = st.sampled_from(
    ["asyncio", "time", "x", "step", "workflow", "charge", "holdfast", "open", "set", "self", "approval"]
)
ATOMS = st.one_of(NAMES, st.sampled_from(["1", "'a'", "{1}", "set()", "None", "{}", "[]"]))


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    return st.one_of(
        st.builds("{}.{}".format, inner, NAMES),
        st.builds("{}({})".format, inner, inner),
        two.map(lambda pair: f"({pair[0]} | {pair[1]})"),
        two.map(lambda pair: f"[{pair[0]} for x in {pair[1]}]"),
        two.map(lambda pair: f"(x := {pair[0]}, {pair[1]})"),
        st.builds("(lambda x: {})".format, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("(await {})".format, inner),
        st.builds("{{*{}}}".format, inner),
    )


EXPRESSIONS = st.recursive(ATOMS.map(lambda one: f"({one})"), _wider, max_leaves=8)
STATEMENTS = st.lists(
    st.one_of(
        EXPRESSIONS,
        st.builds("{} = {}".format, NAMES, EXPRESSIONS),
        st.builds("from {0} import {1} as {0}".format, NAMES, NAMES),
        st.builds("global {}".format, NAMES),
        st.builds("for {} in {}: {}".format, NAMES, EXPRESSIONS, EXPRESSIONS),
        st.builds("try: {}\nexcept {}: pass".format, EXPRESSIONS, EXPRESSIONS),
        st.builds("@{0}\nasync def {1}({1}: {0} = {0}) -> {0}: {0}".format, EXPRESSIONS, NAMES),
        st.builds("class {}({}): {}: {} = {}".format, NAMES, EXPRESSIONS, NAMES, EXPRESSIONS, EXPRESSIONS),
        st.builds(
            "match {}:\n    case [{}, *{}]: {}".format, EXPRESSIONS, st.just("a"), st.just("b"), EXPRESSIONS
        ),
        st.builds("with {} as {}: {}".format, EXPRESSIONS, NAMES, EXPRESSIONS),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(above=STATEMENTS, body=STATEMENTS)
def test_any_code_is_looked_at(
    tmp_path_factory: pytest.TempPathFactory, above: list[str], body: list[str]
) -> None:
    inside = "\n".join(f"    {line}" for one in ["pass", *body] for line in one.split("\n"))
    lines = "\n".join(above)
    text = f"{HEAD}\nasync def around() -> None: pass\n{lines}\n@holdfast.workflow\nasync def flow(x):\n{inside}\n"
    path = tmp_path_factory.getbasetemp() / "flows.py"
    path.write_text(text)
    report = lint([str(path)])

    assert {one.code for one in report.findings} <= RULES.keys()
    assert all(1 <= one.line <= one.end_line and one.column >= 1 for one in report.findings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "each", "least"),
    [
        (("asyncio", "contextlib.py", "dataclasses.py"), 1, 900),
        pytest.param((".",), 5, 2_000, marks=pytest.mark.slow),
    ],
)
def test_the_functions_of_python_itself_can_all_be_looked_at(
    names: tuple[str, ...], each: int, least: int
) -> None:
    """As if they were workflows: the largest collection of Python code at hand."""
    program = Program(find_files([str(STDLIB / name) for name in names]))
    bodies = FunctionChecker(Origins(program))
    looked = 0
    for file in list(program.files)[::each]:
        module = program.module(file.path)
        for definition in () if module is None else module.definitions.values():
            if not isinstance(definition.node, ast.ClassDef):
                hits, _ = bodies.check(definition)
                looked += 1
                assert {hit.code for hit in hits} <= RULES.keys()
        if module is not None:
            list(bodies.dropping.check_module(module, [], frozenset({"run", "step"})))
    assert looked > least


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"workflow = (", "line 1"),
        (b"workflow = \x00", "null byte"),
        (b"# -*- coding: nonsense -*-\nworkflow", "nonsense"),
        (b"workflow = '\xff'", "utf-8"),
        (b"workflow = " + b"(" * 5_000 + b")" * 5_000, "nested"),
        (b"workflow = " + b"-" * 50_000 + b"1", "nested"),
    ],
)
def test_what_is_no_python_is_told_and_the_rest_looked_at(
    lint_program: Lint, tmp_path: Path, source: bytes, reason: str
) -> None:
    (tmp_path / "broken.py").write_bytes(source)
    text = "import time\nfrom holdfast import workflow\n@workflow\nasync def flow(): time.time()\n"
    report = lint_program({"flows.py": text})

    assert codes(report) == ["HF001"]
    (unreadable,) = report.unreadable
    assert unreadable.path == "broken.py"
    assert reason in unreadable.reason


def test_code_that_is_deep_is_looked_at_or_told_of(lint_program: Lint) -> None:
    """A thousand attributes in a row can be parsed, but not followed."""
    head = "import time\nfrom holdfast import workflow\n@workflow\nasync def flow():\n"
    report = lint_program(
        {
            "deep.py": f"{head}    print(time{'.x' * 3_000})\n",
            "wide.py": f"{head}    print({' + '.join('1' * 3_000)})\n    time.time()\n",
            "fine.py": f"{head}    time.time()\n",
        }
    )

    told = {one.path for one in report.unreadable} | {one.path for one in report.findings}
    assert told >= {"fine.py"}
    assert {one.path for one in report.unreadable} <= {"deep.py", "wide.py"}


def test_a_file_that_holds_no_workflow_is_read_only_if_it_is_named(lint_program: Lint) -> None:
    files = {"old.py": "print 'hello'\n"}

    assert lint_program(files).unreadable == ()
    assert len(lint_program(files, "old.py").unreadable) == 1


def test_columns_count_characters(lint_body: Lint) -> None:
    report = lint_body("import time\nprint('é€😀', time.time())")

    assert report.findings[0].column == 5 + len("print('é€😀', ")


def test_nothing_is_imported(lint_program: Lint) -> None:
    before = set(sys.modules)
    lint_program(
        {"flows.py": "import this_is_not_there\nfrom holdfast import workflow\nimport antigravity\n"}
    )

    assert "antigravity" not in set(sys.modules) - before
    assert json.dumps(True) == "true"
