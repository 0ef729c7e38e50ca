"""Code that may be intended is a warning, not a finding."""

import pytest

from tests.unit.hosts.devtools.lint.conftest import Lint, codes

WARNED = (
    "---\nprint(order)",
    "---\nlist(map(print, [order]))",
    "---\nprint(order, file=order)",
    "def tell(order):\n    print(order)\n---\ntell(order)",
    "import sys\n---\nsys.stdout.write('x')",
    "from sys import stderr as out\n---\nout.writelines(['x'])",
    "from pprint import pprint\n---\npprint(order)",
    "import json\n---\njson.dump(order, order)",
    "import traceback\n---\ntraceback.print_exc()",
    "from typing import TextIO\nFILE: TextIO\n---\nFILE.write('x')",
    "import click\n---\nclick.echo('x')",
)
LEFT_ALONE = (
    "import json\n---\njson.dumps(order)",
    "import logging\n---\nlogging.getLogger().info('x')",
    "@step\ndef tell(order: int) -> None:\n    print(order)\n---\nawait tell(order)",
    "---\nawait holdfast.side_effect(lambda: print(order), type=int)",
    "def print(order): ...\n---\nprint(order)",
    "---\nprint(order)  # noqa: HF017",
    "print('imported')\n---\npass",
)
CERTAIN = (
    "---\nwith open('x', 'w') as file:\n    file.write('x')",
    "from pathlib import Path\n---\n(Path('a') / 'b').write_text('x')",
    "from pathlib import Path\n---\nwith Path('a').open('w') as file:\n    file.write('x')",
    "import os\n---\nos.write(1, b'x')",
)


def linted(lint_body: Lint, text: str) -> tuple[list[str], list[str]]:
    above, _, body = text.rpartition("---\n")
    report = lint_body(body, above)
    return codes(report), [one.code for one in report.warnings]


@pytest.mark.parametrize("text", WARNED)
def test_what_is_printed_is_a_warning(lint_body: Lint, text: str) -> None:
    assert linted(lint_body, text) == ([], ["HF017"])


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_writes_once_or_nothing_is_left_alone(lint_body: Lint, text: str) -> None:
    assert linted(lint_body, text) == ([], [])


@pytest.mark.parametrize("text", CERTAIN)
def test_a_file_that_is_opened_is_a_finding(lint_body: Lint, text: str) -> None:
    assert linted(lint_body, text) == (["HF005"], [])
