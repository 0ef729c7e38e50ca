"""The command `holdfast workflow list`."""

from typing import cast

import click

from holdfast.hosts.cli.console import Screen, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options


@engine_command("list", "[ENGINE]")
@click.option("--name", default="", metavar="NAME", help="Only the versions of this workflow.")
@click.option("--after", metavar="NAME@VERSION", help="The next page: the last workflow of the page before.")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many workflows."
)
@engine_options
def list_command(*, screen: Screen, target: Target, name: str, after: str | None, limit: int) -> None:
    """List the workflows of the engine, and those that workers have registered. JSON has their schemas."""
    with target.backend() as (backend, _):
        found = backend.workflows(name, after, limit)
    if screen.as_json:
        screen.data(list(found))
        return
    if not found:
        screen.note("The engine has no workflow, and no worker has registered one.")
        return
    rows = table("name", "version", "kind", "code is here", "registered", "takes", wraps=("takes",))
    for one in found:
        at = "" if one.registered_at is None else screen.instant(one.registered_at)
        here = "yes" if one.has_code else "no"
        rows.add_row(safe(one.name), safe(one.version), one.kind, here, at, safe(_takes(one.input)))
    screen.write(rows)
    if len(found) == limit:
        screen.note(f"There may be more: --after {found[-1].name}@{found[-1].version}")


def _takes(schema: object) -> str:
    """Return what an input consists of, in short: the names of its fields, or its type."""
    parts = cast("dict[str, object]", schema) if isinstance(schema, dict) else {}
    fields, kind = parts.get("properties"), parts.get("type")
    if isinstance(fields, dict):
        return ", ".join(cast("dict[str, object]", fields)) or "nothing"
    return kind if isinstance(kind, str) else ""
