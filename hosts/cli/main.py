"""The entry point of `holdfast`. It reports a missing extra `cli` before click and rich are imported."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_NEEDED: Final = ("click", "rich")
_USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments, by default those of the process. Return the exit code."""
    if arguments is None:
        _let_signals_end_first_process()
    try:
        from holdfast.hosts.cli.app import run_command_line

        return run_command_line(sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        print(
            f'holdfast: the command line needs {missing}, which is not installed: pip install "holdfast[cli]"',
            file=sys.stderr,
        )
        return _USAGE


def _let_signals_end_first_process() -> None:
    """Let SIGTERM and SIGHUP end this process, as they end any other, if it is the first one of a container.

    The kernel discards signals to process 1 that have no handler. A worker and a server install theirs only after they
    have imported the user's code and reached the database. A signal before that would be lost, and they would start
    although they have been stopped.
    """
    if os.getpid() != 1:
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            # SystemExit would not do: it is an error of the user's module while that is imported.
            signal.signal(number, lambda received, _: os._exit(128 + received))


if __name__ == "__main__":
    sys.exit(main())
