"""The command `holdfast doctor`."""

import attrs
import click
from rich.text import Text

from holdfast.hosts.cli.console import Screen, safe
from holdfast.hosts.cli.engine_options import Target, engine_command, store_options
from holdfast.hosts.cli.exit_codes import Exit
from holdfast.hosts.maintenance.doctor.findings import FINDINGS, Diagnosis, DoctorFinding
from holdfast.hosts.text import counted
from holdfast.hosts.wiring.stores import check_schema


@engine_command("doctor", "[ENGINE]", Exit.UNHEALTHY)
@click.option("--repair", is_flag=True, help="Repair whatever can be repaired without guessing.")
@click.option("--check-blobs", is_flag=True, help="Read every referenced blob.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=FINDINGS,
    metavar="N",
    help=f"List at most this many findings; all are counted.  [default: {FINDINGS:,}]",
)
@click.option("--all-namespaces", is_flag=True, help="Check, and repair, all namespaces of the store.")
@store_options
def doctor_command(
    *, screen: Screen, target: Target, repair: bool, check_blobs: bool, limit: int, all_namespaces: bool
) -> None:
    """Check a namespace, or all of them, for inconsistencies."""
    with target.opened() as (engine, _):
        check_schema(engine.core.stores)
        diagnosis = engine.sync.doctor(
            repair=repair, blobs=check_blobs, limit=limit, all_namespaces=all_namespaces
        )
    if screen.as_json:
        screen.data({"healthy": diagnosis.is_sound, **attrs.asdict(diagnosis)})
    else:
        _print_findings(screen, diagnosis)
    raise SystemExit(Exit.OK if diagnosis.is_sound else Exit.UNHEALTHY)


def _print_findings(screen: Screen, diagnosis: Diagnosis) -> None:
    advice: str | None = None
    for finding in diagnosis.findings:
        style, state = ("green", "repaired ") if finding.repaired else ("bold red", "")
        screen.write(
            Text.assemble((f"{state}{finding.code}", style), f" {_where(finding)}{safe(finding.text)}")
        )
        # Findings of one kind follow each other and share their advice: print it once.
        if not finding.repaired and finding.advice != advice:
            screen.write(Text(f"    {finding.advice}", style="dim"))
        advice = None if finding.repaired else finding.advice
    found = sum(diagnosis.found.values())
    if found > len(diagnosis.findings):
        screen.note(f"{found - len(diagnosis.findings):,} more are not listed.")
    blobs = "" if diagnosis.blobs is None else f", {counted(diagnosis.blobs, 'blob')}"
    counts = ", ".join(f"{number:,} {code}" for code, number in diagnosis.found.items())
    what = f"found {found:,} ({counts}), repaired {diagnosis.repaired:,}" if found else "no findings"
    screen.write(f"{counted(diagnosis.runs, 'run')}{blobs}: {what}")


def _where(finding: DoctorFinding) -> str:
    if finding.run_id is None:
        return ""
    generation = "" if finding.generation in {None, 1} else f", generation {finding.generation}"
    namespace = "" if finding.namespace in {None, "default"} else f" of {safe(finding.namespace or '')}"
    return f"run {safe(finding.run_id)}{namespace}{generation}: "
