"""The command `holdfast run annotate`."""

import click

from holdfast.hosts.cli.console import Screen, safe, screen_options
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.inspection.annotations import annotate_command as command_of
from holdfast.ports.json import parse_input


@click.command("annotate", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("words", nargs=-1, metavar="[ENGINE] ID NAME=TEXT...")
@click.option("--json-values", is_flag=True, help="The text after each = is JSON.")
@click.option("--reason", default="", metavar="TEXT", help="The reason, for people.")
@click.option(
    "--key", metavar="KEY", help="Annotate once: an earlier annotation with this key stays as it is."
)
@click.option("--stage", metavar="NAME", help="Annotate this stage.")
@click.option("--item", type=click.IntRange(min=0), metavar="N", help="Annotate this item of the stage.")
@engine_options
@screen_options
def annotate_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    json_values: bool,
    reason: str,
    key: str | None,
    stage: str | None,
    item: int | None,
) -> None:
    """Annotate a run, whatever its status. `holdfast run list --annotation` finds it by the annotation."""
    pairs = [word for word in words if "=" in word and "://" not in word.partition("=")[0]]
    others = [word for word in words if word not in pairs]
    if len(others) > 1 and (len(others) > 2 or ":" not in others[0]):
        raise click.UsageError(f"{others[-1]!r} is not an annotation: write NAME=TEXT")
    spec, (run_id,) = target.split(others, "ID")
    annotations = _annotations(pairs, are_json=json_values)
    with target.opened(spec) as engine:
        command = command_of(
            engine.core.namespace,
            run_id,
            annotations,
            {
                "reason": reason,
                "key": key,
                "stage": stage,
                "item": item,
            },
        )
        stored = engine.client.dispatch(command).stored
    if screen.as_json:
        screen.data({"id": run_id, "stored": stored})
    else:
        known = (
            ""
            if stored == len(annotations)
            else f"; {len(annotations) - stored} were stored before with this key"
        )
        screen.write(f"{safe(run_id)}: {stored} annotations stored{known}")


def _annotations(pairs: list[str], *, are_json: bool) -> dict[str, object]:
    annotations: dict[str, object] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if not name or name in annotations:
            raise click.UsageError(f"{pair}: write NAME=TEXT, each name once")
        try:
            annotations[name] = parse_input(text) if are_json else text
        except ValueError as error:
            raise click.UsageError(f"{pair}: {text!r} is not JSON: {error}") from None
    if not annotations:
        raise click.UsageError("no annotations: write NAME=TEXT")
    return annotations
