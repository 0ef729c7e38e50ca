"""Dependencies have lower bounds above known vulnerabilities."""

from tools.floors import floors

KNOWN = {
    "click": (8, 3, 3),  # CVE-2026-7246
    "pytest": (9, 0, 3),  # CVE-2025-71176
    "pyjwt": (2, 13),  # CVE-2026-32597, CVE-2026-48523
    "urllib3": (2, 7),  # CVE-2026-44431, CVE-2026-44432
    "psycopg-binary": (3, 3),  # has libpq in it: CVE-2025-1094, CVE-2025-12818
}


def test_no_dependency_may_be_older_than_the_release_that_closed_a_hole() -> None:
    found = {
        name: tuple(map(int, floor.split(".")))
        for name, _, floor in (one.partition("==") for one in floors())
    }

    assert found.keys() >= KNOWN.keys()
    assert {name: floor for name, floor in KNOWN.items() if found[name] < floor} == {}
