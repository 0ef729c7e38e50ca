"""An order and the run that ships it are stored in one transaction: both, or neither. No outbox is needed."""

import sqlalchemy
from sqlalchemy import text

from holdfast import Engine, SyncEngine, Worker, step, workflow


@step
def send_parcel(order: int) -> str:
    return f"order {order} is on its way"


@workflow
async def ship(order: int) -> str:
    return await send_parcel(order)


WORKFLOWS = (ship,)


def place(engine: SyncEngine, connection: sqlalchemy.Connection, order: int) -> None:
    connection.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order})
    engine.within(connection).start(ship(order), id=f"order-{order}")


def use(engine: SyncEngine, database: sqlalchemy.Engine) -> list[str]:
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
    with database.begin() as connection:
        place(engine, connection, 1)
    with database.connect() as connection:
        place(engine, connection, 2)
        connection.rollback()
    with database.begin() as connection:
        place(engine, connection, 3)
    with database.connect() as connection:
        orders = connection.scalars(text("SELECT id FROM orders ORDER BY id")).all()
    shipped = [engine.handle(ship, f"order-{order}").result() for order in orders]
    assert sum(engine.count(workflow=ship).values()) == len(orders)
    return shipped


def main() -> None:
    database = sqlalchemy.create_engine("sqlite:///outbox.db")
    with Engine.open("sqlite:///outbox.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine, database))
    database.dispose()


if __name__ == "__main__":
    main()
