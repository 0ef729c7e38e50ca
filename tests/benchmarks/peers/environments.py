"""An environment for each peer, with the versions that its requirements pin."""

import hashlib
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
_ROOT: Final = _HERE.parents[2]

PEERS: Final = ("dbos", "absurd", "edda", "procrastinate", "pgqueuer", "apscheduler")
"""What Holdfast is measured beside: three engines, two queues of jobs, and a scheduler."""
HOLDFAST: Final = "holdfast"
FLOOR: Final = "floor"
"""Hand-written SQL that does the same, with nothing around it: no engine, and what none can be faster than."""
OWN: Final = (HOLDFAST, FLOOR)
"""Those that run in our own environment."""


def python_of(peer: str) -> Path:
    """Return the Python with which a peer's program is run; its environment is made first, if need be."""
    if peer in OWN:
        return Path(sys.executable)
    wanted = _HERE.joinpath("requirements", f"{peer}.txt")
    folder = _ROOT / ".cache" / "peers" / peer
    stamp = folder / ".made"
    made_of = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()
    python = folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != made_of:
        venv.create(folder, clear=True, with_pip=True)
        install = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-r", wanted)
        subprocess.run(install, check=True)
        stamp.write_text(made_of)
    return python


def program_of(peer: str) -> Path:
    """Return the program that measures a peer."""
    return _HERE / "programs" / f"{peer}_.py"


def version_of(peer: str) -> str:
    """Return the version of what is measured, from its requirements."""
    if peer in OWN:
        from importlib.metadata import version

        return version(HOLDFAST)
    first = _HERE.joinpath("requirements", f"{peer}.txt").read_text().splitlines()[0]
    return first.partition("==")[2]
