"""Commands on credentials, with their replies. None has a secret: their issuers make it and pass its hash."""

from typing import ClassVar, Final, Literal

from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.ports.records.credential import CredentialKind
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

DAY: Final[Micros] = 86_400_000_000


@frozen(kw_only=True)
class CredentialCreated:
    """Reply to `CredentialCreate`."""

    id: str
    created: bool
    """Whether the command created it. False: the label names it already, and the secret of the command is void."""


@frozen(kw_only=True)
class CredentialCreate(OperatorCommand[CredentialCreated]):
    """Command to create a credential. One with this label and the same rights stays unchanged.

    Errors: CredentialExistsError if the credential with this label has other rights, another principal or another end,
    has expired, or, with `only_if_first`, if any credential exists; InvalidCommandError.
    """

    type: ClassVar[Literal["credential.create"]] = "credential.create"
    id: str
    """12 random characters of `a-z2-7`. With `only_if_first`, the reply has the id that is used instead."""
    kind: CredentialKind = CredentialKind.KEY
    label: str
    """1 to 100 of `A-Z a-z 0-9 _ . @ -`, the first a letter or a digit."""
    hash: str
    """SHA-256 of the secret, in lower-case hexadecimal."""
    scopes: tuple[str, ...]
    """Names of scopes, such as `read`; at least one."""
    namespaces: tuple[str, ...]
    """The namespaces in which it is valid, or `*` for all; at least one."""
    principal: str = ""
    """Who uses it: what actors name. Empty: the label."""
    expires_at: Micros | None = None
    """From when on it is refused; None: never."""
    only_if_first: bool = False
    """Whether it is created only if there has never been a credential: the first one, for a server without any."""


@frozen(kw_only=True)
class CredentialRotated:
    """Reply to `CredentialRotate`."""

    id: str
    previous_until: Micros
    """Until when the former secret is accepted."""


@frozen(kw_only=True)
class CredentialRotate(OperatorCommand[CredentialRotated]):
    """Command to replace the secret of a credential. The former one is accepted for a while; one before that no more.

    Errors: CredentialNotFoundError if it does not exist or was revoked; InvalidCommandError if it has expired, or the
    secret is the one that it has.
    """

    type: ClassVar[Literal["credential.rotate"]] = "credential.rotate"
    name: str
    """The id or the label."""
    hash: str
    """SHA-256 of the new secret, in lower-case hexadecimal."""
    grace: Micros = DAY
    """Microseconds for which the former secret is accepted, at most 30 days; 0: it ends at once."""


@frozen(kw_only=True)
class CredentialRevoked:
    """Reply to `CredentialRevoke`."""

    id: str
    revoked: bool
    """Whether the command revoked it. False: it was revoked before."""


@frozen(kw_only=True)
class CredentialRevoke(OperatorCommand[CredentialRevoked]):
    """Command to revoke a credential, for good. Its label may be used again. Errors: CredentialNotFoundError."""

    type: ClassVar[Literal["credential.revoke"]] = "credential.revoke"
    name: str
    """The id or the label."""
    reason: str = ""
    """Why, for people."""


@frozen(kw_only=True)
class CredentialsTouched:
    """Reply to `CredentialTouch`."""

    touched: int
    """How many rows were written."""


@frozen(kw_only=True)
class CredentialTouch(Command[CredentialsTouched]):
    """Command to note that credentials were used. Of each, this is written at most once a minute.

    Unknown ids are ignored. Errors: InvalidCommandError for more than 500 ids.
    """

    type: ClassVar[Literal["credential.touch"]] = "credential.touch"
    ids: tuple[str, ...]
