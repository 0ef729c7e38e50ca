"""The command `holdfast run annotate`."""

import attrs
import click

from holdfast.hosts.cli.console import Screen, safe
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.inspection.annotations import annotate_command as command_of
from holdfast.ports.json import parse_input


@engine_command("annotate", "[ENGINE] ID NAME=TEXT...", Exit.NOT_FOUND)
@click.option("--json-values", is_flag=True, help="The text after each = is JSON.")
@click.option("--reason", default="", metavar="TEXT", help="The reason, for people.")
@click.option(
    "--key", metavar="KEY", help="Annotate once: an earlier annotation with this key stays as it is."
)
@click.option("--stage", metavar="NAME", help="Annotate this stage.")
@click.option("--item", type=click.IntRange(min=0), metavar="N", help="Annotate this item of the stage.")
@engine_options
def annotate_command(
    *,
    screen: Screen,
    target: Target,
    json_values: bool,
    reason: str,
    key: str | None,
    stage: str | None,
    item: int | None,
) -> None:
    """Annotate a run, whatever its status. `holdfast run list --annotation` finds it by the annotation."""
    words = target.words
    pairs = [word for word in words if "=" in word and "://" not in word.partition("=")[0]]
    others = [word for word in words if word not in pairs]
    if len(others) > 1 and (len(others) > 2 or ":" not in others[0]):
        raise click.UsageError(f"{others[-1]!r} is not an annotation: write NAME=TEXT")
    target = attrs.evolve(target, words=tuple(others))
    spec, (run_id,) = target.split("ID")
    annotations = _annotations(pairs, are_json=json_values)
    with target.backend_at(spec) as backend:
        command = command_of(
            backend.namespace,
            run_id,
            annotations,
            {"reason": reason, "key": key, "stage": stage, "item": item},
        )
        stored = backend.dispatch(command).stored
    before = len(annotations) - stored
    known = f"; {before} were stored before with this key" if before else ""
    screen.answer({"id": run_id, "stored": stored}, f"{safe(run_id)}: {stored} annotations stored{known}")


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
