"""The command `holdfast openapi`."""

import json
from pathlib import Path

import click

from holdfast.hosts.cli.console import Screen, safe, screen_options, write_new
from holdfast.hosts.cli.exit_codes import Exit, exits


@click.command("openapi", epilog=exits(Exit.OK, Exit.USAGE, Exit.REFUSED))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file, which must not exist.  [default: stdout]",
)
@screen_options
def openapi_command(*, screen: Screen, output: Path | None) -> None:
    """Write the OpenAPI document of the server, as JSON.

    It is that of every server of this version: it needs neither a store nor a server.
    """
    from importlib import import_module

    import_module("holdfast.http")  # its error names the extra that is missing
    from holdfast.hosts.http.openapi import openapi_document
    from holdfast.hosts.http.table import OPERATIONS

    text = f"{json.dumps(openapi_document(OPERATIONS), indent=1)}\n"
    if output is None:
        screen.document(text)
        return
    write_new(output, text.encode(), "-o")
    screen.answer({"file": str(output)}, f"{safe(str(output))} was written")
