"""Print the oldest releases that the package may be installed with, one a line, for `make audit`."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parent.parent
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[(?P<extra>\w+)\])?>=(?P<floor>[0-9][0-9.]*)(,<[0-9][0-9.]*)?(; .+)?"
)


def floors() -> Iterator[str]:
    """Yield `name==release` for each dependency, of the package and of its extras. ValueError if one has no floor."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = cast("dict[str, list[str]]", project["optional-dependencies"])
    wanted = {
        *cast("list[str]", project["dependencies"]),
        *(one for several in extras.values() for one in several),
    }
    for requirement in sorted(wanted):
        found = _REQUIREMENT.fullmatch(requirement)
        if found is None:
            raise ValueError(f"{requirement} has no floor: write name>=release")
        yield f"{found['name']}=={found['floor']}"
        if found["extra"] == "binary":  # what is compiled is a package of its own, with libraries in it
            yield f"{found['name']}-binary=={found['floor']}"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{one}\n" for one in floors()))
