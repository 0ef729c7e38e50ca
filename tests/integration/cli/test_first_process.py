"""The command as the first process of a container, to which the kernel delivers only signals that have a handler."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
import os, threading
print(os.getpid(), os.readlink("/proc/self"), flush=True)  # its ids in the container and outside
threading.Event().wait()
"""
CONTAINER = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "--pid", "--fork")


def _works(*command: str) -> bool:
    """Whether a command exists and may be used here."""
    return shutil.which(command[0]) is not None and not subprocess.run(command, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("command", ["worker", "serve"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_first_process_of_a_container_while_it_starts(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    if not _works(*CONTAINER, "true"):
        pytest.skip("needs `unshare`, and the right to use it")
    (tmp_path / "app.py").write_text(APP)
    words = (sys.executable, "-m", "holdfast.hosts.cli.main", command, "app:engine")
    with subprocess.Popen(
        [*CONTAINER, "--kill-child", *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            inside, outside = map(int, process.stdout.readline().split())
            assert inside == 1
            os.kill(outside, number)
            assert process.wait(20) == 128 + number
        finally:
            process.kill()
