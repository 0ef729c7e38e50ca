"""The signals that stop a worker or a server."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM, and those of SIGINT and SIGHUP that the process does not ignore.

    A terminal that is closed sends SIGHUP. Windows has none. `nohup` lets a process ignore it, and a shell lets its
    background jobs ignore SIGINT: a handler would undo that.
    """
    found = [signal.SIGTERM]
    for name in ("SIGINT", "SIGHUP"):
        number: signal.Signals | None = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            found.append(number)
    return tuple(found)
