"""The command `holdfast run ai`."""

from typing import Literal

import click
from rich.table import Table

from holdfast.hosts.cli.console import Screen, iso, one_line, safe, screen_options, table
from holdfast.hosts.cli.engine_options import Target, engine_options
from holdfast.hosts.cli.exit_codes import Exit, exits
from holdfast.hosts.cli.run_facts import find_run
from holdfast.hosts.cli.text_output import place_name
from holdfast.hosts.inspection.ai_calls import AiCallInfo, AiTotals, ai_calls_of, ai_totals_of
from holdfast.hosts.text import format_duration
from holdfast.ports.clock import micros

_NUMBERS = ("calls", "failed", "input", "output", "cost", "took")


@click.command("ai", epilog=exits(Exit.OK, Exit.USAGE, Exit.NOT_FOUND, Exit.UNAVAILABLE, Exit.SCHEMA))
@click.argument("words", nargs=-1, metavar="[ENGINE] ID")
@click.option("--topic", metavar="TOPIC", help="Only calls of this topic and its subtopics.")
@click.option("--by", type=click.Choice(["model", "topic"]), default="model", help="Group totals by this.")
@click.option("--calls", is_flag=True, help="List the calls. With --json each is a separate object.")
@click.option("--texts", is_flag=True, help="With --calls and --json: prompts and responses too.")
@engine_options
@screen_options
def ai_command(
    *,
    screen: Screen,
    target: Target,
    words: tuple[str, ...],
    topic: str | None,
    by: Literal["model", "topic"],
    calls: bool,
    texts: bool,
) -> None:
    """Show the totals of a run's model calls, or list the calls."""
    if texts and not (calls and screen.as_json):
        raise click.UsageError("--texts needs --calls and --json")
    spec, (run_id,) = target.split(words, "ID")
    with target.opened(spec) as engine:
        run = find_run(engine.core, run_id)
        if not calls:
            totals = ai_totals_of(engine.core, run.key, topic, by)
            if screen.as_json:
                parts = [_totals_document(part) for part in totals.parts]
                screen.data({**_totals_document(totals), f"by_{by}": parts})
            else:
                screen.write(_totals_table(totals, by))
            return
        found = ai_calls_of(engine.core, run.key, {"topic": topic, "texts": texts})
        if screen.as_json:
            for call in found:
                screen.line(_call_document(call, texts=texts))
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
            format_duration(round(part.duration.total_seconds() * 1_000_000)),
        )
    return rows


def _calls_table(screen: Screen, calls: list[AiCallInfo]) -> Table:
    rows = table(
        "at", "stage", "topic", "model", "input", "output", "cost", "", right=("input", "output", "cost")
    )
    for call in calls:
        rows.add_row(
            screen.instant(micros(call.at)),
            place_name(call.stage, call.item),
            safe(call.topic),
            safe(call.model),
            str(call.input_tokens),
            str(call.output_tokens),
            "" if call.cost is None else f"{call.cost:f}",
            one_line(call.error or "", 100),
        )
    return rows


def _totals_document(totals: AiTotals) -> dict[str, object]:
    return {
        **({"name": totals.name} if totals.name else {}),
        "calls": totals.calls,
        "failed": totals.failed,
        "unpriced": totals.unpriced,
        "input_tokens": totals.input_tokens,
        "output_tokens": totals.output_tokens,
        "cost": f"{totals.cost:f}",
        "duration_seconds": totals.duration.total_seconds(),
    }


def _call_document(call: AiCallInfo, *, texts: bool) -> dict[str, object]:
    document: dict[str, object] = {
        "at": iso(micros(call.at)),
        "topic": call.topic,
        "model": call.model,
        "kind": call.kind.value,
        "stage": call.stage,
        "item": call.item,
        "epoch": call.epoch,
        "input_tokens": call.input_tokens,
        "output_tokens": call.output_tokens,
        "cost": None if call.cost is None else f"{call.cost:f}",
        "duration_seconds": None if call.duration is None else call.duration.total_seconds(),
        "batch": call.batch,
        "batch_index": call.batch_index,
        "error": call.error,
        "metadata": dict(call.metadata),
        "cursor": call.cursor,
    }
    return {**document, "prompt": call.prompt, "response": call.response} if texts else document
