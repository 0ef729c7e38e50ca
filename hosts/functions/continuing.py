"""How a function goes on as a new generation: with the updates that it has not begun with, and what it shows."""

from typing import Final

import attrs

from holdfast.hosts.bodies import Body
from holdfast.hosts.functions.drive import Drive
from holdfast.hosts.functions.opening import rows_after
from holdfast.hosts.functions.patience import until_available_in_thread
from holdfast.hosts.functions.shown import name_of_shown, newest_shown
from holdfast.kernel.commands import CarriedValue, ContinuedAsNew
from holdfast.kernel.decide.continuing import sent_on
from holdfast.kernel.functions.asked import GoesOn

_SHOWN_PAGE: Final = 100
"""How many rows are read at once of what a function has shown."""


async def going_on(body: Body, drive: Drive, ended: GoesOn) -> ContinuedAsNew:
    """Return that the run goes on as a new generation, with the updates that the function has not begun with."""
    unread = drive.unread

    def made() -> ContinuedAsNew:
        rows = [row for row in (rows_after(body, 0) if unread else ()) if row.number in unread]
        # Not in a place of this generation's: it is the next one's.
        place = attrs.evolve(body.place, run=f"{body.work.run.key}-next")
        return ContinuedAsNew(
            workflow=ended.workflow,
            version=ended.version,
            input=body.payloads.put(ended.input, place),
            seen=drive.seen,
            updates=tuple(sent_on(row) for row in rows if row.type == "update.received"),
            published=_shown(body) if drive.has_shown else (),
        )

    return await until_available_in_thread(made, "what a function goes on with can't be stored yet")


def _shown(body: Body) -> tuple[CarriedValue, ...]:
    """Return what the function shows: of each name the last."""
    newest: dict[str, CarriedValue] = {}
    for row in newest_shown(body.parts.persistence, body.work.run, _SHOWN_PAGE):
        name = name_of_shown(row)
        if name not in newest and row.payload is not None:
            newest[name] = CarriedValue(name=name, value=row.payload)
    return tuple(newest[name] for name in sorted(newest))
