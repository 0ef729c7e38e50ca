"""The commands `holdfast key create`, `list`, `rotate` and `revoke`, and `holdfast audit`."""

from datetime import datetime, timedelta
from typing import Final

import click

from holdfast.hosts.cli.console import Screen, fact_table, safe, table
from holdfast.hosts.cli.engine_options import Target, engine_command, engine_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.cli.filter_options import instant_of, length, start_moment
from holdfast.hosts.inspection.keys import KeyInfo, NewKey
from holdfast.ports.json import compact
from holdfast.ports.scopes import ALL_NAMESPACES, Scope

_ENTRIES_LISTED: Final = 100


@engine_command("create", "[ENGINE] LABEL", Exit.REFUSED)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What the key allows; may be repeated.",
)
@click.option(
    "--in",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Where it allows that; may be repeated. * is all.  [default: that of the engine]",
)
@click.option("--admin", is_flag=True, help="All scopes, in all namespaces.")
@click.option("--principal", default="", metavar="NAME", help="Who uses the key.  [default: its label]")
@click.option(
    "--expires",
    type=start_moment,
    metavar="TIME",
    help="Refuse it from this time on: 2026-12-24, or a delay such as 90d.  [default: never]",
)
@engine_options
def create_command(
    *,
    screen: Screen,
    target: Target,
    scopes: tuple[str, ...],
    namespaces: tuple[str, ...],
    admin: bool,
    principal: str,
    expires: datetime | timedelta | None,
) -> None:
    """Create an API key of the server, and show it this once.

    If a key with this LABEL has the same rights already, it stays unchanged, and is not shown. Refused if it has
    others.
    """
    if admin == bool(scopes or namespaces):
        raise click.UsageError("say what the key allows: --scope SCOPE (and --in NAMESPACE), or --admin")
    if namespaces and not scopes:
        raise click.UsageError("--in needs --scope: say what the key allows there")
    end = -expires if isinstance(expires, timedelta) else expires
    with target.backend("LABEL") as (backend, (label,)):
        key = backend.api.keys.create(
            label,
            scopes=list(Scope) if admin else scopes,
            namespaces=(ALL_NAMESPACES,) if admin else namespaces or None,
            principal=principal,
            expires_at=instant_of(end, backend.now(), utc=screen.zone is not None),
        )
    if not key.created:
        screen.note(f"A key {label!r} exists already; `holdfast key rotate` gives it a new secret.")
    _answer(screen, key)


@engine_command("list", "[ENGINE]")
@engine_options
def list_command(*, screen: Screen, target: Target) -> None:
    """List the API keys of the store, without their secrets."""
    with target.backend() as (backend, _):
        keys = backend.api.keys.list()
        now = backend.now()
    if screen.as_json:
        screen.data(keys)
    elif not keys:
        screen.note("No keys.")
    else:
        rows = table("label", "id", "scopes", "namespaces", "state", "created", "used", wraps=("namespaces",))
        for key in keys:
            rows.add_row(
                safe(key.label),
                key.id,
                " ".join(key.scopes),
                safe(" ".join(key.namespaces)),
                _state(screen, key, now),
                screen.instant(key.created_at),
                "" if key.used_at is None else screen.instant(key.used_at),
            )
        screen.write(rows)


@engine_command("rotate", "[ENGINE] KEY", Exit.NOT_FOUND)
@click.option(
    "--grace",
    type=length,
    default="1d",
    metavar="PERIOD",
    help="How long the former secret is accepted, such as 1h; 0s: no more.  [default: 1d]",
)
@engine_options
def rotate_command(*, screen: Screen, target: Target, grace: timedelta) -> None:
    """Give an API key a new secret, and show it this once. KEY is a label or an id."""
    with target.backend("KEY") as (backend, (name,)):
        key = backend.api.keys.rotate(name, grace=grace)
    _answer(screen, key)


@engine_command("revoke", "[ENGINE] KEY", Exit.NOT_FOUND)
@click.option("--reason", default="", metavar="TEXT", help="Your reason, for people.")
@engine_options
def revoke_command(*, screen: Screen, target: Target, reason: str) -> None:
    """Revoke an API key for good. Servers refuse it within five seconds. KEY is a label or an id."""
    with target.backend("KEY") as (backend, (name,)):
        info = backend.api.keys.revoke(name, reason=reason)
    screen.answer(info, f"{safe(info.label)} ({info.id}) is revoked")


@engine_command("audit", "[ENGINE]")
@click.option("--after", metavar="CURSOR", help="Only entries before the one with this cursor (see --json).")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_ENTRIES_LISTED,
    metavar="N",
    help=f"List at most this many.  [default: {_ENTRIES_LISTED}]",
)
@engine_options
def audit_command(*, screen: Screen, target: Target, after: str | None, limit: int) -> None:
    """List the audit log, the newest entry first: actions on keys, namespaces, limits and sinks, and removals."""
    with target.backend() as (backend, _):
        entries = list(backend.api.audit(after=after, limit=limit))
    if screen.as_json:
        screen.data(entries)
    elif not entries:
        screen.note("No entries.")
    else:
        rows = table("at", "action", "target", "by", "request", "details", wraps=("details",))
        for entry in entries:
            rows.add_row(
                screen.instant(entry.at),
                entry.action,
                safe(entry.target),
                "" if entry.actor is None else safe(entry.actor.text),
                safe(entry.request_id or ""),
                safe(compact(dict(entry.details))),
            )
        screen.write(rows)


def _answer(screen: Screen, key: NewKey) -> None:
    info = key.info
    facts = fact_table()
    facts.add_row("label", safe(info.label))
    facts.add_row("id", info.id)
    facts.add_row("scopes", " ".join(info.scopes))
    facts.add_row("namespaces", safe(" ".join(info.namespaces)))
    facts.add_row("expires", "never" if info.expires_at is None else screen.instant(info.expires_at))
    if info.previous_until is not None:
        facts.add_row("former until", screen.instant(info.previous_until))
    if key.text is not None:
        facts.add_row("key", key.text)
    screen.answer(key, facts)
    if key.text is not None:
        screen.note("Keep the key in a safe place: it is not shown again.")


def _state(screen: Screen, key: KeyInfo, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "valid"
    return "expired" if key.expires_at <= now else f"until {screen.instant(key.expires_at)}"
