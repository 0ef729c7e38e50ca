"""The codemod finds a name at its definition, and updates the texts of planted bugs."""

from pathlib import Path

import pytest

from tools.codemod import mutants
from tools.codemod.rename import apply, locate
from tools.codemod.server import Place

SOURCE = """class Lease:
    until: int = 0

    def __init__(self, given):
        self._held = given

def settle(rows, *rest):
    for one in rows:
        until = one
    return until
"""


@pytest.mark.parametrize(
    ("name", "line", "column"),
    [
        ("Lease", 0, 6),
        ("Lease.until", 1, 4),
        ("Lease.__init__.given", 3, 23),
        ("Lease._held", 4, 13),
        ("settle", 6, 4),
        ("settle.rows", 6, 11),
        ("settle.one", 7, 8),
        ("settle.until", 8, 8),
    ],
)
def test_a_name_is_found_where_it_is_defined(tmp_path: Path, name: str, line: int, column: int) -> None:
    path = tmp_path / "leases.py"
    path.write_text(SOURCE)

    assert locate(path, name) == (line, column)


def test_a_name_that_is_not_defined_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "leases.py"
    path.write_text(SOURCE)

    with pytest.raises(LookupError, match=r"defines no settle\.gone"):
        locate(path, "settle.gone")


def test_both_texts_of_a_planted_bug_follow_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "FOLDER", tmp_path / "mutants")
    (tmp_path / "mutants").mkdir()
    code, planted = tmp_path / "leases.py", tmp_path / "mutants" / "of_leases.py"
    code.write_text("limit = 3\nif lost < limit:\n    stop(lost)\n")
    planted.write_text('one = Edit("leases.py", "if lost < limit:", "if lost <= limit:  # stop(lost)")\n')
    changes = {
        Place(code, 1, 3, 7): "failed",
        Place(code, 2, 4, 8): "end",
        Place(code, 2, 9, 13): "failed",
    }

    assert mutants.follow(changes, apply(changes)) == []
    assert code.read_text() == "limit = 3\nif failed < limit:\n    end(failed)\n"
    assert planted.read_text() == (
        'one = Edit("leases.py", "if failed < limit:", "if failed <= limit:  # end(failed)")\n'
    )
