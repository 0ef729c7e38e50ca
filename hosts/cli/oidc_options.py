"""The options of the server for an OpenID Connect provider: its tokens, and single sign-on."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from holdfast.ports.errors import InvalidArgumentError, InvalidUrlError

if TYPE_CHECKING:
    from holdfast.hosts.http.authentication.single_sign_on import SingleSignOn
    from holdfast.hosts.http.authentication.tokens import Tokens

_TOKENS = "tokens need --oidc-issuer, at least one --oidc-map, and --oidc-audience or --oidc-client-id"
_SIGN_ON = "single sign-on needs --oidc-issuer, --oidc-client-id and --public-url"


@attrs.frozen(kw_only=True)
class OidcOptions:
    """The values of the options."""

    issuer: str | None
    audience: str | None
    grants: tuple[str, ...]
    subject: str
    client_id: str | None
    client_secret_file: Path | None
    public_url: str | None
    scopes: str
    name: str

    def tokens(self) -> "Tokens | None":
        """Return the check of tokens; None if no option is given. UsageError for what is missing or wrong."""
        audience = self.audience or self.client_id
        if self.issuer is None and audience is None and not self.grants:
            return None
        if self.issuer is None or audience is None or not self.grants:
            raise click.UsageError(_TOKENS)
        from holdfast.hosts.http.authentication.tokens import Grant, Tokens

        try:
            return Tokens(
                issuer=self.issuer,
                audience=audience,
                grants=[Grant.of(one) for one in self.grants],
                subject=self.subject,
            )
        except (InvalidArgumentError, InvalidUrlError) as error:
            raise click.UsageError(str(error)) from None

    def single_sign_on(self) -> "SingleSignOn | None":
        """Return how people sign in with the provider; None without a client. UsageError for what is missing."""
        if self.client_id is None and self.client_secret_file is None and self.public_url is None:
            return None
        if self.client_id is None or self.public_url is None or self.issuer is None:
            raise click.UsageError(_SIGN_ON)
        from holdfast.hosts.http.authentication.single_sign_on import SingleSignOn

        try:
            return SingleSignOn(
                client_id=self.client_id,
                client_secret=self._secret(),
                public_url=self.public_url,
                scopes=tuple(self.scopes.split()),
                name=self.name,
            )
        except (InvalidArgumentError, InvalidUrlError) as error:
            raise click.UsageError(f"single sign-on: {error}") from None

    def _secret(self) -> str | None:
        if self.client_secret_file is None:
            return None
        try:
            return self.client_secret_file.read_text().strip()
        except (OSError, ValueError) as error:
            raise click.UsageError(f"--oidc-client-secret-file: {error}") from None


def oidc_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command. Its body gets `oidc`."""

    @click.option(
        "--oidc-issuer",
        metavar="URL",
        help="Accept JSON Web Tokens of this OpenID Connect issuer, which names itself so in them.",
    )
    @click.option(
        "--oidc-audience",
        metavar="NAME",
        help="The audience that tokens must name: this server.  [default: the client id]",
    )
    @click.option(
        "--oidc-map",
        "grants",
        multiple=True,
        metavar="CLAIM:VALUE=SCOPES@NAMESPACES",
        help="What a claim of a token allows, such as groups:team=read,start@shop; may be repeated: the first that "
        "fits decides.",
    )
    @click.option(
        "--oidc-subject",
        default="sub",
        show_default=True,
        metavar="CLAIM",
        help="The claim that names people in audit entries and histories.",
    )
    @click.option(
        "--oidc-client-id",
        metavar="ID",
        help="Let people sign in to the dashboard with the issuer, as this client (single sign-on).",
    )
    @click.option(
        "--oidc-client-secret-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A file with the secret of the client, if it has one.",
    )
    @click.option(
        "--public-url",
        metavar="URL",
        help="The URL of this server for browsers. The redirect URL of the client is it and /ui/sign-in/return.",
    )
    @click.option(
        "--oidc-scopes",
        default="openid profile email",
        show_default=True,
        metavar="WORDS",
        help="What single sign-on requests of the issuer.",
    )
    @click.option(
        "--oidc-name",
        default="single sign-on",
        show_default=True,
        metavar="TEXT",
        help='What the dashboard calls it: "Sign in with TEXT".',
    )
    @functools.wraps(body)
    def with_options(
        *,
        oidc_issuer: str | None,
        oidc_audience: str | None,
        grants: tuple[str, ...],
        oidc_subject: str,
        oidc_client_id: str | None,
        oidc_client_secret_file: Path | None,
        public_url: str | None,
        oidc_scopes: str,
        oidc_name: str,
        **given: object,
    ) -> None:
        options = OidcOptions(
            issuer=oidc_issuer,
            audience=oidc_audience,
            grants=grants,
            subject=oidc_subject,
            client_id=oidc_client_id,
            client_secret_file=oidc_client_secret_file,
            public_url=public_url,
            scopes=oidc_scopes,
            name=oidc_name,
        )
        body(oidc=options, **given)

    return with_options
