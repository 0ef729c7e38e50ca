"""The options of the server for browser sessions."""

import functools
from collections.abc import Callable
from datetime import timedelta

import attrs
import click

from holdfast.hosts.cli.filter_options import length


@attrs.frozen(kw_only=True)
class BrowserSessionOptions:
    """The values of the options."""

    idle: timedelta
    lifetime: timedelta
    secure: bool


def browser_session_options(body: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command. Its body gets `browser_sessions`."""

    @click.option(
        "--browser-session-idle",
        type=length,
        default="12h",
        metavar="PERIOD",
        help="How long a browser may go unused before it is signed out, such as 1h.  [default: 12h]",
    )
    @click.option(
        "--browser-session-lifetime",
        type=length,
        default="7d",
        metavar="PERIOD",
        help="How long a browser stays signed in at most.  [default: 7d]",
    )
    @click.option(
        "--insecure-cookies",
        is_flag=True,
        help="Let browsers send the cookie of a session without TLS. For localhost that is so anyway.",
    )
    @functools.wraps(body)
    def with_options(
        *,
        browser_session_idle: timedelta,
        browser_session_lifetime: timedelta,
        insecure_cookies: bool,
        **given: object,
    ) -> None:
        options = BrowserSessionOptions(
            idle=browser_session_idle, lifetime=browser_session_lifetime, secure=not insecure_cookies
        )
        body(browser_sessions=options, **given)

    return with_options
