"""Random guesses at the last steps of functions, so that a simulation meets right and wrong ones."""

from zlib import crc32

from typing_extensions import override

from holdfast.hosts.execution.last_steps import LastSteps


class GuessedLastSteps(LastSteps):
    """Expects about half of all steps to be the last ones of their functions. A seed makes the same guesses again."""

    __slots__ = ("_seed",)

    def __init__(self, seed: str) -> None:
        super().__init__()
        self._seed = seed

    @override
    def expects(self, definition: str, call: str) -> bool:
        return crc32(f"{self._seed}/{call}".encode()) % 2 == 0
