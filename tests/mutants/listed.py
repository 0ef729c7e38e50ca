"""All bugs that are planted, and the one of them that is hunted in every run of the tests."""

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.of_attempts import OF_ATTEMPTS
from tests.mutants.of_debts import OF_DEBTS
from tests.mutants.of_forks import OF_FORKS
from tests.mutants.of_functions import OF_FUNCTIONS
from tests.mutants.of_losses import OF_LOSSES
from tests.mutants.of_messages import OF_MESSAGES
from tests.mutants.of_progress import OF_PROGRESS
from tests.mutants.of_queues import OF_QUEUES
from tests.mutants.of_runs import OF_RUNS

MUTANTS: Final[tuple[Mutant, ...]] = (
    *OF_ATTEMPTS,
    *OF_LOSSES,
    *OF_PROGRESS,
    *OF_RUNS,
    *OF_DEBTS,
    *OF_FUNCTIONS,
    *OF_QUEUES,
    *OF_FORKS,
    *OF_MESSAGES,
)
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}
