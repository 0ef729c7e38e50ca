"""Run both type checkers, and check that each has looked at every Python file.

Both are told which folders to read, and a folder that they overlook is a folder without errors. pyright in
particular does not enter the linked folders of src/holdfast unless each is named.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, TypedDict

ROOT = Path(__file__).resolve().parent.parent
OTHERS = ("tests/benchmarks/peers/programs",)
"""What imports libraries that are in environments of their own."""
FOLDERS = ("src/holdfast", "kernel", "ports", "adapters", "hosts", "testing", "tests", "tools", "docs")


class Result(NamedTuple):
    """What a checker said."""

    name: str
    files: int
    errors: int


class _Position(TypedDict):
    line: int
    character: int


class _Range(TypedDict):
    start: _Position


class _Diagnostic(TypedDict, total=False):
    file: str
    severity: str
    message: str
    rule: str
    range: _Range


class _Summary(TypedDict):
    filesAnalyzed: int
    errorCount: int


class _Report(TypedDict):
    generalDiagnostics: list[_Diagnostic]
    summary: _Summary


def main() -> int:
    """Run both. Return the exit code."""
    expected = count_python_files()
    good = True
    for result in (run_mypy(), run_pyright()):
        print(f"{result.name}: {result.files} files, {result.errors} errors", flush=True)
        good = good and result.errors == 0
        if result.files != expected:
            print(f"{result.name} should have read {expected} files: mend its settings in pyproject.toml")
            good = False
    return 0 if good else 1


def count_python_files() -> int:
    """Count the Python files, each once: links are not followed, and hidden folders are nobody's."""
    count = 0
    for top in FOLDERS:
        for folder, folders, files in os.walk(ROOT / top):
            folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
            if os.path.relpath(folder, ROOT) in OTHERS:
                continue
            count += sum(name.endswith(".py") for name in files)
    return count


def run_mypy() -> Result:
    """Run mypy, and read its last line."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr, sep="", end="")
    files = re.search(r"(?:in|checked) (\d+) source files?\)?\s*$", done.stdout)
    errors = re.search(r"^Found (\d+) errors?", done.stdout, re.MULTILINE)
    found = int(errors[1]) if errors else int(done.returncode != 0)
    return Result("mypy", int(files[1]) if files else 0, found)


def run_pyright() -> Result:
    """Run pyright, and print what it found one line each."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        report: _Report = json.loads(done.stdout)
    except json.JSONDecodeError:
        print(done.stdout, done.stderr, sep="")
        return Result("pyright", 0, 1)
    for found in report["generalDiagnostics"]:
        if found.get("severity") != "error":
            continue
        line = found["range"]["start"]["line"] + 1 if "range" in found else 0
        path = os.path.relpath(found.get("file", ""), ROOT)
        print(f"{path}:{line}: {found.get('message', '')} [{found.get('rule', '')}]")
    errors = report["summary"]["errorCount"]
    return Result(
        "pyright", report["summary"]["filesAnalyzed"], errors if done.returncode == 0 else max(errors, 1)
    )


if __name__ == "__main__":
    sys.exit(main())
