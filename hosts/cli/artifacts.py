"""The command `holdfast run artifacts`."""

import re
import sys
from pathlib import Path
from typing import Final

import click

from holdfast.hosts.cli.console import Screen, safe, table, write_new
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.text_output import place_name
from holdfast.hosts.execution.artifacts import ArtifactInfo
from holdfast.hosts.text import counted

_PLAIN: Final = re.compile(r"\w[\w.@ +=-]*", re.ASCII)
"""Artifact names that are plain file names on every system and cannot leave the current folder."""


@engine_command("artifacts", "[ENGINE] ID", Exit.NOT_FOUND, Exit.REFUSED)
@click.option(
    "--save", "name", metavar="NAME", help="Save this artifact to a file of its name in the current folder."
)
@click.option("--to", "target_file", metavar="FILE", help="With --save: to this file; - is stdout.")
@click.option("--stage", metavar="NAME", help="With --save: the artifact of this stage.")
@click.option(
    "--item", type=click.IntRange(min=0), metavar="N", help="With --save: the artifact of this item."
)
@engine_options
def artifacts_command(
    *,
    screen: Screen,
    target: Target,
    name: str | None,
    target_file: str | None,
    stage: str | None,
    item: int | None,
) -> None:
    """List the artifacts of a run's stages, or save one of them."""
    if name is None and (target_file is not None or stage is not None or item is not None):
        raise click.UsageError("--to, --stage and --item need --save")
    with target.backend("ID") as (backend, (run_id,)):
        run = backend.run(run_id)
        if name is None:
            _list(screen, run.artifacts())
            return
        path = _path(name, target_file)
        data = run.artifact(name, stage=stage, item=item)
    if path is None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    write_new(path, data, "--to")
    screen.answer(
        {"name": name, "file": str(path), "size": len(data)},
        f"{safe(str(path))}: {counted(len(data), 'byte')}",
    )


def _path(name: str, target_file: str | None) -> Path | None:
    if target_file == "-":
        return None
    if target_file is not None:
        return Path(target_file)
    if not _PLAIN.fullmatch(name):
        raise click.UsageError(f"{name!r} is not a plain file name; use --to FILE")
    return Path(name)


def _list(screen: Screen, found: list[ArtifactInfo]) -> None:
    if screen.as_json:
        screen.data(found)
        return
    if not found:
        screen.note("No artifacts.")
        return
    rows = table("name", "stage", "type", "size", "at", right=("size",))
    for one in found:
        place = place_name(one.stage, one.item)
        rows.add_row(safe(one.name), place, safe(one.content_type), str(one.size), screen.instant(one.at))
    screen.write(rows)
