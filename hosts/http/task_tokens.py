"""Tokens of tasks, by which remote workers settle them.

A token names a job, an epoch, a session, and the code that the job needs. It is opaque but no secret: whoever has it
must also be the principal of the session. The code is in it because a settle that is repeated after the end of the job
must make the same command again.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import attrs

from holdfast.ports.errors import LeaseLostError
from holdfast.ports.records.job import JobKey, job_key, remote_stage_of, step_of


@attrs.frozen
class TaskToken:
    """The right to settle one attempt."""

    job: str
    epoch: int
    session: str
    definition: str
    """The code that the job needs."""

    @property
    def text(self) -> str:
        """The token as workers see it."""
        data = f"{self.job} {self.epoch} {self.session} {self.definition}".encode()
        return urlsafe_b64encode(data).decode().rstrip("=")

    @property
    def key(self) -> JobKey:
        """The key of the job."""
        return job_key(self.job)

    @property
    def step(self) -> str | None:
        """The name of the queued step; None if it is a stage."""
        return step_of(self.definition)

    @property
    def stage(self) -> str | None:
        """The name of the remote stage; None if it is a step."""
        return remote_stage_of(self.definition)


def token_from(text: str) -> TaskToken:
    """Return the token of a text. LeaseLostError if the server never made it."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        job, epoch, session, definition = data.decode().split(" ", 3)
        token = TaskToken(job, int(epoch), session, definition)
        is_own = token.text == text and token.key.text == job and 0 < token.epoch < 2**31
        is_own = is_own and (token.step is not None or token.stage is not None)
    except ValueError:
        raise LeaseLostError from None
    if not is_own:
        raise LeaseLostError
    return token
