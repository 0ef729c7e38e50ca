"""The script, the styles and the icon of the pages. Their names have a hash of their content, so browsers keep them."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from holdfast.hosts.http.operations import Access, Invocation, Nothing, Operation, Text
from holdfast.hosts.http.problems import HttpError

_TYPES: Final = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FOREVER: Final = (("Cache-Control", "public, max-age=31536000, immutable"),)


def _content(name: str) -> bytes:
    return files("holdfast.hosts.http.pages").joinpath("assets", name).read_bytes()


def _hashed(name: str) -> str:
    stem, _, kind = name.partition(".")
    return f"{stem}.{sha256(_content(name)).hexdigest()[:12]}.{kind}"


SCRIPT: Final = _hashed("app.js")
STYLES: Final = _hashed("app.css")
ICON: Final = _hashed("icon.svg")


@cache
def _files() -> dict[str, Text]:
    found = {"app.js": SCRIPT, "app.css": STYLES, "icon.svg": ICON}
    return {
        hashed: Text(_content(name), _TYPES[name.rpartition(".")[2]], _FOREVER)
        for name, hashed in found.items()
    }


def get_file(call: Invocation[Nothing, Nothing]) -> Text:
    """Get the script, the styles or the icon of the pages."""
    found = _files().get(call.path["name"])
    if found is None:
        raise HttpError("not_found", "the pages have no such file")
    return found


OPERATION: Final = Operation(
    name="page.file",
    method="GET",
    path="/ui/static/{name}",
    scope=Access.ANYONE,
    reply=Text,
    handler=get_file,
    blocks=False,
)
