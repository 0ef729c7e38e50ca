"""Every planted bug applies: the text that it replaces occurs once in the code, and the result is valid Python."""

import ast
from pathlib import Path

import pytest

from tests.mutants.catalogue import BY_NAME, MUTANTS
from tests.mutants.mutant import ROOT, DoesNotApplyError, Edit, Mutant, mutated, plant
from tests.mutants.table import written


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_and_is_another_program(mutant: Mutant) -> None:
    for file, text in mutated(mutant).items():
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse((ROOT / file).read_text()))
        compile(text, file, "exec")


def test_there_are_enough_and_no_two_have_one_name() -> None:
    assert len(MUTANTS) >= 25
    assert len(BY_NAME) == len(MUTANTS)


@pytest.mark.parametrize("old", ["no such text anywhere", "import"])
def test_a_mutant_of_code_that_has_changed_says_so(old: str) -> None:
    mutant = Mutant(
        name="odd", breaks="it", caught_by=("S1",), edits=(Edit("kernel/runs/builder.py", old, "pass"),)
    )
    times = (ROOT / "kernel" / "runs" / "builder.py").read_text().count(old)

    with pytest.raises(
        DoesNotApplyError, match=rf"mutant odd: kernel/runs/builder\.py has this {times} times, not once"
    ):
        mutated(mutant)


@pytest.mark.slow
def test_a_mutant_is_planted_in_a_copy(tmp_path: Path) -> None:
    mutant = MUTANTS[0]
    (file,) = {edit.file for edit in mutant.edits}
    before = (ROOT / file).read_text()

    plant(mutant, tmp_path)

    assert (tmp_path / "holdfast" / file).read_text() == mutated(mutant)[file]
    assert (tmp_path / "holdfast" / "py.typed").is_file()
    assert (ROOT / file).read_text() == before


def test_the_table_in_the_docs_is_of_mutants_that_there_are() -> None:
    told = [
        line.split(" | ")[0].removeprefix("| ") for line in written().splitlines() if line.startswith("| ")
    ]

    assert len(told[1:]) >= 25
    assert set(told[1:]) <= BY_NAME.keys()
