"""The commands `holdfast trigger list`, `show`, `pause`, `resume`, `remove` and `apply`."""

import click
from rich.text import Text

from holdfast.hosts.cli.console import (
    Screen,
    fact_table,
    heading,
    one_line,
    safe,
    status_text,
    table,
)
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options, store_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.inspection.triggers import TriggerInfo
from holdfast.ports.errors import TriggerNotFoundError


@engine_command("list", "[ENGINE]")
@click.option("--after", metavar="NAME", help="Only the triggers after this name.")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many triggers."
)
@engine_options
def list_command(*, screen: Screen, target: Target, after: str | None, limit: int) -> None:
    """List triggers: which messages start which runs, and how far each trigger got."""
    with target.backend() as (backend, _):
        found = list(backend.api.triggers.list(after=after, limit=limit))
    if screen.as_json:
        screen.data(found)
        return
    if not found:
        screen.note("No triggers.")
        return
    numbers = ("behind", "runs", "refused")
    rows = table("name", "messages", "workflow", "state", *numbers, right=numbers, wraps=("messages",))
    for one in found:
        rows.add_row(
            safe(one.name),
            safe(_messages(one)),
            safe(one.workflow),
            status_text(one.state),
            *(f"{number:,}" for number in (one.behind, one.started, one.refused)),
        )
    screen.write(rows)
    if len(found) == limit:
        screen.note(f"There may be more: --after {safe(found[-1].name)}")


def _messages(info: TriggerInfo) -> str:
    """Return which messages start runs: `orders country=nz`."""
    return " ".join([info.topic, *(f"{name}={text}" for name, text in sorted(info.selected.items()))])


@engine_command("show", "[ENGINE] NAME", Exit.NOT_FOUND)
@engine_options
def show_command(*, screen: Screen, target: Target) -> None:
    """Show one trigger: how far it got, the outcomes of its last messages, and who changed it."""
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.triggers.get(name)
    _answer(screen, info)
    if screen.as_json:
        return
    if info.recent:
        screen.write("")
        screen.write(heading("Last messages"))
        rows = table("number", "at", "outcome", "run", "reason", right=("number",), wraps=("reason",))
        for one in info.recent:
            rows.add_row(
                f"{one.number:,}",
                screen.instant(one.at),
                status_text(one.outcome),
                safe(one.run or ""),
                one_line(one.reason),
            )
        screen.write(rows)
    if info.changes:
        screen.write("")
        screen.write(heading("Changes"))
        rows = table("at", "what", "by", "reason", wraps=("reason",))
        for change in info.changes:
            rows.add_row(screen.instant(change.at), change.change, safe(change.by), one_line(change.reason))
        screen.write(rows)


def _answer(screen: Screen, info: TriggerInfo) -> None:
    facts = fact_table()
    facts.add_row("Trigger", Text(safe(info.name), style="bold"))
    facts.add_row("Messages", safe(_messages(info)))
    facts.add_row("Workflow", safe(info.workflow))
    facts.add_row("State", status_text(info.state))
    if info.problem is not None:
        facts.add_row("Problem", Text(one_line(info.problem, 1_000), style="red"))
    if info.paused_at is not None:
        by = f" by {info.paused_by}" if info.paused_by else ""
        why = f": {info.pause_reason}" if info.pause_reason else ""
        facts.add_row("Paused", safe(f"{screen.instant(info.paused_at)}{by}{why}"))
    facts.add_row("Next message", f"{info.next_number:,}")
    facts.add_row("Behind", f"{info.behind:,}")
    facts.add_row("Runs started", f"{info.started:,}")
    if info.refused:
        facts.add_row("Refused", f"{info.refused:,}")
    facts.add_row("Made", "declared in code" if info.declared else "at run time")
    facts.add_row("Created", screen.instant(info.created_at))
    screen.answer(info, facts)


@engine_command("pause", "[ENGINE] NAME", Exit.NOT_FOUND)
@click.option("--reason", default="", metavar="TEXT", help="Your reason, for people.")
@engine_options
def pause_command(*, screen: Screen, target: Target, reason: str) -> None:
    """Pause a trigger: it starts no run until it is resumed. The topic keeps the messages."""
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.triggers.pause(name, reason=reason)
    _answer(screen, info)


@engine_command("resume", "[ENGINE] NAME", Exit.NOT_FOUND)
@click.option("--skip", is_flag=True, help="Pass over the messages that were published during the pause.")
@engine_options
def resume_command(*, screen: Screen, target: Target, skip: bool) -> None:
    """Resume a trigger that is paused. Each message that was published meanwhile starts its run."""
    with target.backend("NAME") as (backend, (name,)):
        info = backend.api.triggers.resume(name, skip=skip)
    _answer(screen, info)


@engine_command("remove", "[ENGINE] NAME", Exit.NOT_FOUND)
@engine_options
def remove_command(*, screen: Screen, target: Target) -> None:
    """Remove a trigger. Its runs stay."""
    with target.backend("NAME") as (backend, (name,)):
        is_declared = backend.api.triggers.get(name).declared
        if not backend.api.triggers.remove(name):
            raise TriggerNotFoundError(name)
    screen.answer({"name": name, "removed": True}, f"{safe(name)} was removed")
    if is_declared:
        screen.note("Code declares this trigger. Change it there too, or a deploy may put it back.")


@engine_command("apply", "[ENGINE]", Exit.NOT_FOUND)
@store_options
def apply_command(*, screen: Screen, target: Target) -> None:
    """Create and update the triggers that the code of an engine declares, and remove those that it has dropped.

    Workers whose engine has migrate=True, which is the default, do this when they start, and so does
    `holdfast db upgrade ENGINE`. Triggers that were created at run time stay.
    """
    spec, _ = target.split()
    with target.engine_with_code(spec, "trigger apply") as engine:
        if engine.sync.declared_triggers is None:
            raise click.UsageError(
                "the engine declares no triggers: Engine.open(..., triggers=[...]); with triggers=[] those that it "
                "declared before are removed"
            )
        has_changed = engine.sync.apply_triggers()
        names = [one.name for one in engine.sync.declared_triggers]
    text = ", ".join(map(safe, names)) or "none"
    screen.answer(
        {"triggers": names, "changed": has_changed},
        f"Declared triggers: {text}. {'They have changed.' if has_changed else 'Nothing has changed.'}",
    )
