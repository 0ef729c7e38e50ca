"""Every bug of the second list can be planted and names existing tests; some are hunted."""

import ast

import pytest

from tests.mutants.by_tests.__main__ import hunt_all
from tests.mutants.by_tests.catalogue import BY_NAME, MUTANTS, SURVIVORS
from tests.mutants.mutant import ROOT, Mutant, mutated

SAMPLE = (
    "session-pruned-with-its-jobs",
    "sqlite-synchronous-normal",
    "rate-rounded-down",
    "datetime-fold-lost",
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_applies_is_another_program_and_has_tests(mutant: Mutant) -> None:
    for file, text in mutated(mutant).items():
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse((ROOT / file).read_text()))
    assert mutant.caught_by
    for tests in mutant.caught_by:
        assert (ROOT / tests.partition(" -k ")[0]).exists(), tests


def test_there_are_enough_and_no_two_have_one_name() -> None:
    assert len(MUTANTS) >= 60
    assert len(BY_NAME) == len(MUTANTS)
    assert SURVIVORS.keys() <= BY_NAME.keys()


@pytest.mark.slow
def test_some_are_caught() -> None:
    assert [
        one.mutant.name for one in hunt_all([BY_NAME[name] for name in SAMPLE], 2) if not one.is_killed
    ] == []
