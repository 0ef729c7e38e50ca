"""The entry point of `holdfast`. It reports a missing extra `cli` before click and rich are imported."""

import sys
from collections.abc import Sequence
from typing import Final

_NEEDED: Final = ("click", "rich")
_USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments, by default those of the process. Return the exit code."""
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


if __name__ == "__main__":
    sys.exit(main())
