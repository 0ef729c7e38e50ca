"""A service for Restate: one handler of one step, as its documentation has it."""

import restate

adding = restate.Service("adding")


@adding.handler()
async def one(context: restate.Context, number: int) -> int:
    """Add one, in a step."""
    return await context.run_typed("add", _next, number=number)


def _next(number: int) -> int:
    return number + 1


app = restate.app([adding])
