"""The built package: its files, and a fast import without optional dependencies."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("adapters", "hosts", "kernel", "ports", "testing")
PUBLIC_MODULES = ("client", "errors", "http", "metrics", "plugins", "remote", "serverless", "workflows")
OPTIONAL = (
    "alembic",
    "click",
    "hypothesis",
    "httpx",
    "prometheus_client",
    "psycopg",
    "pydantic",
    "pytest",
    "rich",
    "starlette",
    "tzdata",
    "uvicorn",
    "uvloop",
)
IMPORTED_MODULES_MAX = 130
"""How many modules of Holdfast are imported to write pipelines: a count, which no machine changes. They are 111."""

SMOKE = f"""
import sys
import holdfast
holdfast.Pipeline, holdfast.StageContext, holdfast.stage
print(len([name for name in sys.modules if name.partition(".")[0] == "holdfast"]))
heavy = sorted({{"anyio", "asyncio", "sqlalchemy"}} & set(sys.modules))
assert not heavy, f"to write pipelines imports {{heavy}}"
for name in holdfast.__all__:
    getattr(holdfast, name)
wrong = sorted(set({OPTIONAL!r}) & set(sys.modules))
assert not wrong, f"import holdfast imports {{wrong}}"
wrong = sorted(set({PACKAGES!r}) & set(sys.modules))
assert not wrong, f"installed at the top level: {{wrong}}"
assert "site-packages" in holdfast.__file__, holdfast.__file__
from importlib.resources import files
assert files("holdfast").joinpath("py.typed").is_file()
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    _run(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder), cwd=ROOT
    )
    return folder


@pytest.fixture(scope="module", params=["*.whl", "*.tar.gz"], ids=["wheel", "sdist"])
def python(request: pytest.FixtureRequest, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone, and return that environment's Python."""
    (built,) = dist.glob(request.param)
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    _run(str(python), "-m", "pip", "install", "--quiet", str(built))
    return python


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {f"holdfast/{name}" for name in _package_files()} | {
        "holdfast/__init__.py",
        "holdfast/py.typed",
        *(f"holdfast/{name}.py" for name in PUBLIC_MODULES),
    }


def test_the_sdist_holds_what_the_wheel_is_built_from_and_the_tests(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        *_package_files(),
        "src/holdfast/__init__.py",
        "src/holdfast/py.typed",
        *(f"src/holdfast/{name}.py" for name in PUBLIC_MODULES),
    } <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= names
    assert {"tests/conftest.py", "tools/purity.py"} <= names
    assert not {name for name in names if name.startswith((".cache", ".venv", ".git/"))}


def test_an_sdist_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    (wheel,) = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    _run(*pip, "--wheel-dir", str(tmp_path), str(sdist))
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


def test_import_is_small_and_brings_no_optional_dependency(python: Path, tmp_path: Path) -> None:
    assert int(_run(str(python), "-c", SMOKE, cwd=tmp_path)) <= IMPORTED_MODULES_MAX


def test_pytest_finds_the_plugin(python: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import entry_points; print(*entry_points(group='pytest11', name='holdfast'))"
    )
    assert "value='holdfast.testing.pytest_plugin'" in _run(str(python), "-c", code, cwd=tmp_path)


def _package_files() -> set[str]:
    """Return the files of the packages, relative to the repository."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).glob("**/*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


def _run(*command: str, cwd: Path | None = None) -> str:
    """Run a program outside the current environment, and return its output."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout
