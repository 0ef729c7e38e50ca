"""What is particular to a database is in its folder."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from holdfast.adapters import sql
from holdfast.adapters.sql.databases import REGISTERED, DatabaseKind, kind_of, url_forms

ROOT: Final = Path(next(iter(sql.__path__)))
FOLDERS: Final = {folder.rpartition(".")[2] for folder in REGISTERED}
SHARED: Final = sorted(
    path
    for path in ROOT.rglob("*.py")
    if path.relative_to(ROOT).parts[0] not in FOLDERS and path.name != "databases.py"
)
PARTICULAR: Final = re.compile(
    r"psycopg|sqlite|postgres|pg_|libpq|xmin|rowid|json_each|json_to|json_extract|lateral|pragma",
    re.IGNORECASE,
)


def words(path: Path) -> Iterator[str]:
    """Yield the names and the texts of a module's code, without comments and docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.ImportFrom(module=str(name)):
                yield name
            case _:
                pass


@pytest.mark.parametrize("path", SHARED, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_all_databases_share_knows_none_of_them(path: Path) -> None:
    assert [word for word in words(path) if PARTICULAR.search(word)] == []


def test_this_would_notice_a_driver_and_a_word_of_its_sql(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""sqlite"""\nimport sqlite3  # psycopg\nfrom psycopg import pq\nSQL = "SELECT xmin"\n'
    )

    assert {word for word in words(module) if PARTICULAR.search(word)} == {
        "sqlite3",
        "psycopg",
        "SELECT xmin",
    }
    assert len(SHARED) > 20


@pytest.mark.parametrize("folder", REGISTERED)
def test_each_registered_folder_opens_the_urls_that_it_shows(folder: str) -> None:
    kind: DatabaseKind = import_module(folder).DATABASE

    assert kind_of(kind.url_form) is kind
    assert all(kind_of(f"{scheme}:///there") is kind for scheme in kind.schemes)
    assert kind.url_form in url_forms()


@pytest.mark.parametrize("url", ["", "sqlite+other:///a.db", "mysql://host/db", "sqlite3:///a.db"])
def test_other_schemes_are_of_no_database(url: str) -> None:
    assert kind_of(url) is None


def test_the_kind_of_a_url_is_known_without_sqlalchemy_and_without_a_driver() -> None:
    program = (
        "import sys; from holdfast.adapters.sql.databases import url_forms; print(len(url_forms()), "
        "{'sqlalchemy', 'psycopg', 'sqlite3', 'alembic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == f"{len(REGISTERED)} set()"
