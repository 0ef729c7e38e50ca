"""What the help of every command says of its exit codes."""

from holdfast.hosts.cli.exits import MEANINGS, Exit


def exits(*codes: Exit) -> str:
    """Return the end of a command's help: its exit codes, all of them if none are named."""
    # A store that can be without tables can refuse its user, too.
    shown = [
        (code, meaning)
        for code, meaning in MEANINGS
        if not codes or code in codes or (code is Exit.DENIED and Exit.SCHEMA in codes)
    ]
    lines = "\n".join(f"{code:>5}  {meaning}" for code, meaning in shown)
    return f"\b\nExit codes:\n{lines}"
