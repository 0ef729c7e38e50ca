"""The command `holdfast run ai`."""

from typing import Literal

import click
from rich.table import Table

from holdfast.hosts.cli.console import Screen, format_length, one_line, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.text_output import place_name
from holdfast.hosts.inspection.ai_calls import AiCallInfo, AiTotals

_NUMBERS = ("calls", "failed", "input", "output", "cost", "took")


@engine_command("ai", "[ENGINE] ID", Exit.NOT_FOUND)
@click.option("--topic", metavar="TOPIC", help="Only calls of this topic and its subtopics.")
@click.option("--by", type=click.Choice(["model", "topic"]), default="model", help="Group totals by this.")
@click.option("--calls", is_flag=True, help="List the calls. With --json each is a separate object.")
@click.option("--texts", is_flag=True, help="With --calls and --json: prompts and responses too.")
@engine_options
def ai_command(
    *,
    screen: Screen,
    target: Target,
    topic: str | None,
    by: Literal["model", "topic"],
    calls: bool,
    texts: bool,
) -> None:
    """Show the totals of a run's model calls, or list the calls."""
    if texts and not (calls and screen.as_json):
        raise click.UsageError("--texts needs --calls and --json")
    with target.backend("ID") as (backend, (run_id,)):
        run = backend.run(run_id)
        if not calls:
            totals = run.ai_totals(topic=topic, by=by)
            screen.answer(totals, _totals_table(totals, by))
            return
        found = run.ai_calls(topic=topic, texts=texts)
        if screen.as_json:
            for call in found:
                screen.line(call)
        else:
            screen.write(_calls_table(screen, list(found)))


def _totals_table(totals: AiTotals, by: str) -> Table:
    rows = table(by, *_NUMBERS, right=_NUMBERS)
    for part in (*totals.parts, totals):
        cost = f"{part.cost:f}" + (f" + {part.unpriced} unknown" if part.unpriced else "")
        rows.add_row(
            "total" if part is totals else safe(part.name),
            str(part.calls),
            str(part.failed),
            str(part.input_tokens),
            str(part.output_tokens),
            cost,
            format_length(part.duration),
        )
    return rows


def _calls_table(screen: Screen, calls: list[AiCallInfo]) -> Table:
    rows = table(
        "at", "stage", "topic", "model", "input", "output", "cost", "", right=("input", "output", "cost")
    )
    for call in calls:
        rows.add_row(
            screen.instant(call.at),
            place_name(call.stage, call.item),
            safe(call.topic),
            safe(call.model),
            str(call.input_tokens),
            str(call.output_tokens),
            "" if call.cost is None else f"{call.cost:f}",
            one_line(call.error or "", 100),
        )
    return rows
