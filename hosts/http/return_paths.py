"""Paths of this server to which a browser is sent after a form."""


def is_return_path(path: str) -> bool:
    """Return whether no browser takes a path for an address of another site, or splits it into two headers."""
    is_path = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return is_path and path.isascii() and path.isprintable()
