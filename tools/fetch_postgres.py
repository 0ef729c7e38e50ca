"""Fetch the PostgreSQL binaries that the tests start, into .cache/postgres.

They come out of a wheel, so a package index is all that is needed. The wheel is unzipped and not installed: its
binaries do not care which Python runs us, while the wheel is there for some only.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / ".cache" / "postgres"
NEEDED = ("pgserver/pginstall/bin/", "pgserver/pginstall/lib/", "pgserver/pginstall/share/", "pgserver.libs/")
ADVICE = """\
The PostgreSQL binaries could not be fetched for this machine (see pip's answer above). The tests can use another:
  a server of yours:  export HOLDFAST_TEST_POSTGRES_URL=postgresql://user:password@host:port/database
  your own binaries:  put `initdb` and `postgres` on the PATH
"""


def main() -> int:
    """Fetch what is missing. Return the exit code."""
    TARGET.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TARGET.parent, prefix="postgres-") as folder:
        download = Path(folder, "download")
        requirements = ROOT / "tools" / "postgres-requirements.txt"
        command = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "download",
            "--quiet",
            "--no-deps",
        ]
        command += ["--only-binary=:all:", "--python-version=3.12", "--require-hashes"]
        command += ["--dest", str(download), "--requirement", str(requirements)]
        if subprocess.run(command, check=False).returncode != 0:
            if os.environ.get("HOLDFAST_TEST_POSTGRES_URL") or shutil.which("initdb"):
                print("No PostgreSQL wheel for this machine: the tests use yours")
                TARGET.mkdir(exist_ok=True)
                return 0
            print(ADVICE, file=sys.stderr)
            return 1
        unpacked = Path(folder, "unpacked")
        (wheel,) = download.glob("*.whl")
        unzip(wheel, unpacked)
        shutil.rmtree(TARGET, ignore_errors=True)
        unpacked.rename(TARGET)
    return 0


def unzip(wheel: Path, target: Path) -> None:
    """Unpack what a server needs, with the executable bits, which zipfile drops."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(NEEDED) and not entry.is_dir():
                path = Path(archive.extract(entry, target))
                path.chmod(0o755 if (entry.external_attr >> 16) & 0o111 else 0o644)


if __name__ == "__main__":
    sys.exit(main())
