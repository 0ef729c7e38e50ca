"""`holdfast doctor`."""

from pathlib import Path

from holdfast.hosts.cli.exit_codes import Exit
from holdfast.ports.changes import Delete
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.records.run import RunName
from holdfast.ports.tables import JOBS
from tests.unit.hosts.cli.conftest import CommandLine

ENGINE = "shop:engine"


def _lose_jobs(holdfast: CommandLine, id: str) -> None:
    store = holdfast.engine().core.stores.persistence
    run = store.read(FindRun(RunName("default", id)))
    assert run is not None
    jobs = store.read(JobsOfRun(run.key))
    store.transact(lambda tx: tx.apply([Delete(JOBS, job.key) for job in jobs]))


def test_a_sound_store_is_ok(holdfast: CommandLine) -> None:
    holdfast.start("a", id="x")
    answer = holdfast("doctor", ENGINE)

    assert (answer.code, answer.out) == (Exit.OK, "1 run: no findings\n")
    checked = holdfast("doctor", ENGINE, "--check-blobs", "--json")
    assert (checked.code, checked.json["healthy"], checked.json["blobs"]) == (Exit.OK, True, 0)


def test_what_is_broken_is_told_and_repaired(holdfast: CommandLine) -> None:
    """The exit code says that something is left to do."""
    holdfast.start("a", id="x\u202ed")
    holdfast.start("a", id="y")
    _lose_jobs(holdfast, "x\u202ed")
    _lose_jobs(holdfast, "y")
    answer = holdfast("doctor", ENGINE)
    assert answer.code == Exit.UNHEALTHY
    assert answer.out.startswith("S7 run x")
    assert "\u202e" not in answer.out
    assert answer.out.count("`holdfast doctor --repair` repairs it.") == 1
    assert answer.out.endswith("2 runs: found 2 (2 S7), repaired 0\n")

    told = holdfast("doctor", ENGINE, "--json", "--limit", "1")
    assert (told.code, told.json["healthy"], told.json["found"]) == (Exit.UNHEALTHY, False, {"S7": 2})
    (finding,) = told.json["findings"]
    assert (finding["code"], finding["run_id"], finding["generation"]) == ("S7", "x\u202ed", 1)
    assert holdfast("doctor", ENGINE, "--limit", "1").err == "1 more are not listed.\n"

    repaired = holdfast("doctor", ENGINE, "--repair")
    assert (repaired.code, repaired.out.count("repaired S7 run")) == (Exit.OK, 2)
    assert "holdfast" not in repaired.out
    assert holdfast("doctor", ENGINE).code == Exit.OK


def test_tables_that_are_missing_are_reported_as_by_other_commands(
    holdfast: CommandLine, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/nothing.db"
    answer = holdfast("doctor", "--url", url, "--repair", "--json")

    assert (answer.code, answer.error["code"]) == (Exit.SCHEMA, "schema")
    assert answer.err == holdfast("run", "list", "--url", url, "--json").err
    assert not (tmp_path / "nothing.db").exists()
