"""The hunt of a mutant with tests: the tests named for it run in a copy of the checkout with the bug."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import attrs

from tests.mutants.mutant import ROOT, Mutant, mutated

SECONDS_MAX: Final = 300
"""The time limit for one mutant's tests. A test that hangs has caught it, too."""
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_PASSED: Final = re.compile(r"\b(\d+) passed\b")


@attrs.frozen(kw_only=True)
class TestHunt:
    """The result of a hunt. `caught` is the test that failed, "" if none did."""

    mutant: Mutant
    caught: str
    seconds: float

    @property
    def is_killed(self) -> bool:
        """Whether a test failed."""
        return bool(self.caught)


class Checkout:
    """A copy of the checkout in which mutants are planted one after the other."""

    def __init__(self, folder: Path, postgres_url: str) -> None:
        """Copy tracked and new files. The tests use the server at `postgres_url`."""
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "src"),
            "HOLDFAST_TEST_POSTGRES_URL": postgres_url,
        }
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, folder / name
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def hunt(self, mutant: Mutant) -> TestHunt:
        """Plant a mutant, run its tests until one fails, and restore the code. Raises DoesNotApplyError."""
        started = time.monotonic()
        texts = mutated(mutant)
        try:
            for file, text in texts.items():
                self._write(file, text)
            caught = self._run(mutant.caught_by)
        finally:
            for file in texts:
                self._write(file, (ROOT / file).read_text())
        return TestHunt(mutant=mutant, caught=caught, seconds=time.monotonic() - started)

    def passes(self, tests: tuple[str, ...]) -> bool:
        """Return whether tests pass without a mutant; otherwise a failure proves nothing."""
        return not self._run(tests)

    def _write(self, file: str, text: str) -> None:
        path = self._folder / file
        path.write_text(text)
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            stale.unlink()

    def _run(self, tests: tuple[str, ...]) -> str:
        """Run tests; return the one that failed, "" if all passed. Raises RuntimeError if there were none."""
        # A mutant's name must not be needed to find tests: `file.py -k words` is one entry.
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", ""]
        for one in tests:
            path, _, words = one.partition(" -k ")
            done = subprocess.Popen(
                [*command, path, *(("-k", words) if words else ())],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                out, _ = done.communicate(timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired:
                done.kill()
                done.communicate()
                return f"{one} (hangs)"
            if done.returncode:
                found = _FAILED.search(out)
                return found[1] if found else f"{one}: {out.strip().splitlines()[-1][:150]}"
            if _PASSED.search(out) is None:
                raise RuntimeError(f"{one} has no test that passes:\n{out}")
        return ""
