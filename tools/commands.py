"""Write down what the help of each command says, for help that needs no engine: `python -m tools.commands`."""

import json
from importlib import import_module

from holdfast.hosts.cli.commands import COMMANDS, DESCRIPTIONS, describe


def descriptions(places: dict[str, str]) -> str:
    """Return the descriptions of the commands in these places, as they are kept."""
    found: dict[str, object] = {}
    for path, place in places.items():
        module, _, name = place.partition(":")
        found[path] = describe(getattr(import_module(module), name))
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write them."""
    DESCRIPTIONS.write_text(descriptions(COMMANDS), encoding="utf-8")


if __name__ == "__main__":
    main()
