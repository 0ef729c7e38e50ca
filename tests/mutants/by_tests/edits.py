"""Mutants made of one or more edits, with the tests that must catch them."""

from tests.mutants.mutant import Edit, Mutant


def one_edit(
    name: str,
    breaks: str,
    file: str,
    old: str,
    new: str,
    *tests: str,
    also: tuple[tuple[str, str, str], ...] = (),
) -> Mutant:
    """Return a mutant. `tests` are paths, each optionally followed by ` -k WORDS` to select tests in the file."""
    edits = (Edit(file, old, new), *(Edit(*one) for one in also))
    return Mutant(name=name, breaks=breaks, caught_by=tests, edits=edits)
