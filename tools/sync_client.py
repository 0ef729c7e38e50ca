"""Generate the sync client of a server from the async one: `python -m tools.sync_client`. `--check` only compares.

What is awaited is the same code without `async` and `await`, with other names for a few classes. Nothing has to be
inserted, as it would have to be the other way round.
"""

import argparse
import re
import sys
from pathlib import Path

from tools.async_facade import formatted

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "hosts/http_client"
MODULES = ("administration", "client", "connection", "run_handle", "schedule_handle", "server")
"""The modules that wait for answers. The others are shared."""

WORDS = (
    (r"\bfrom anyio import sleep\b", "from time import sleep"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bhttpx\.AsyncClient\b", "httpx.Client"),
    (r"\bcurrent_loop\b", "anywhere"),
    (r"(?<!httpx\.)\b(Client|Connection|Server|Waiter)\b(?=[(\[:`.,)]| \||$| not| is)", r"Sync\1"),
    (r"\bRemote(RunHandle|ScheduleHandle|Limits|Keys|Namespaces)\b", r"SyncRemote\1"),
    (r"\bAsync(Iterator|Generator)\b", r"\1"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(close|read|iter_lines)\b", r"\1"),
    (r"\bfor async code\b", "for synchronous code"),
    (rf"\bhttp_client\.({'|'.join(MODULES)})\b", r"http_client.sync_\1"),
)
"""Patterns of words, and what they become."""


def main(arguments: list[str] | None = None) -> int:
    """Write the modules, or compare them. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a module is out of date")
    is_check = parser.parse_args(arguments).check
    outdated = 0
    for module in MODULES:
        source, target = f"{FOLDER}/{module}.py", f"{FOLDER}/sync_{module}.py"
        text = generated(source, target)
        path = ROOT / target
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if is_check:
            print(f"{target} is not what {source} gives: run `python -m tools.sync_client`")
            outdated += 1
        else:
            path.write_text(text, encoding="utf-8")
    return int(outdated > 0)


def generated(source: str, target: str) -> str:
    """Return the text of a sync module."""
    text = (ROOT / source).read_text(encoding="utf-8")
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    head = f"# Generated from {source} by `python -m tools.sync_client`. Do not edit.\n"
    return formatted(head + text, target)


if __name__ == "__main__":
    sys.exit(main())
