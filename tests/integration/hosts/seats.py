"""A table of an application in the store's database, which transactional steps write."""

from sqlalchemy import Engine, column, select, table

SEATS = table("test_seats", column("owner"), column("seat"))


class Seats:
    """A table of the application in the store's database."""

    def __init__(self, engine: Engine, owner: str) -> None:
        self.owner = owner
        self._engine = engine

    @property
    def taken(self) -> list[str]:
        with self._engine.connect() as connection:
            mine = select(SEATS.c.seat).where(SEATS.c.owner == self.owner).order_by(SEATS.c.seat)
            return [seat for (seat,) in connection.execute(mine)]
