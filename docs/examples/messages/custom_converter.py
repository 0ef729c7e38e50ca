"""A class without fields that Holdfast can read is stored by a converter: as an input, a result, and in a list."""

from fractions import Fraction

from holdfast import Engine, SyncEngine, Worker, step, workflow
from holdfast.workflows import register_converter

register_converter(Fraction, stored_as=str, dump=str, load=Fraction, example=Fraction(1, 3))


@step
def share(whole: Fraction, parts: list[Fraction]) -> list[Fraction]:
    return [whole * part for part in parts]


@workflow
async def divide(whole: Fraction, parts: list[Fraction]) -> dict[str, Fraction]:
    shares = await share(whole, parts)
    return {"largest": max(shares), "left": whole - sum(shares, Fraction(0))}


WORKFLOWS = (divide,)


def use(engine: SyncEngine) -> dict[str, Fraction]:
    return engine.run(divide(Fraction(3, 4), [Fraction(1, 3), Fraction(1, 2)]))


def main() -> None:
    with Engine.open("sqlite:///shares.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print({name: str(value) for name, value in use(engine).items()})


if __name__ == "__main__":
    main()
