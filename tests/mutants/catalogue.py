"""All bugs that are hunted with the simulator."""

from typing import Final

from tests.mutants.attempts import ATTEMPTS
from tests.mutants.bounded_keys import BOUNDED_KEYS
from tests.mutants.external_cancels import EXTERNAL_CANCELS
from tests.mutants.forks import FORKS
from tests.mutants.functions import FUNCTIONS
from tests.mutants.gathering import GATHERING
from tests.mutants.last_steps import LAST_STEPS
from tests.mutants.limits import LIMITS
from tests.mutants.lost_attempts import LOST_ATTEMPTS
from tests.mutants.messages import MESSAGES
from tests.mutants.mutant import Mutant
from tests.mutants.progress import PROGRESS
from tests.mutants.queued_steps import QUEUED_STEPS
from tests.mutants.runs import RUNS
from tests.mutants.schedules import SCHEDULES
from tests.mutants.sent_messages import SENT_MESSAGES
from tests.mutants.sent_updates import SENT_UPDATES
from tests.mutants.topic_groups import GROUPS
from tests.mutants.topics import TOPICS
from tests.mutants.triggers import TRIGGERS

MUTANTS: Final[tuple[Mutant, ...]] = (
    *ATTEMPTS,
    *LOST_ATTEMPTS,
    *PROGRESS,
    *RUNS,
    *EXTERNAL_CANCELS,
    *FUNCTIONS,
    *LAST_STEPS,
    *QUEUED_STEPS,
    *FORKS,
    *MESSAGES,
    *SCHEDULES,
    *GATHERING,
    *BOUNDED_KEYS,
    *LIMITS,
    *SENT_MESSAGES,
    *SENT_UPDATES,
    *TOPICS,
    *GROUPS,
    *TRIGGERS,
)
BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}
