"""Settings of connections to PostgreSQL: those of the URL, and those that Holdfast enforces.

Ids are sent and read as UTF-8, an acknowledged commit is on disk, and a transaction may write: contrary settings of
the URL, the environment, the role or the database are overruled. Timeouts and planner settings are only defaults.
"""

import math
import re
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.adapters.sql.postgresql.errors import from_connecting
from holdfast.ports.errors import InvalidUrlError
from holdfast.ports.urls import hide, secrets_of

STATEMENT_SECONDS: Final = 5.0
LOCK_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
CONNECT_SECONDS_MIN: Final = 2.0
"""The driver's shortest connect timeout, by which a call may exceed its caller's deadline."""

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
"""Explicit about all modes, so that defaults of the server, role or session have no effect."""
TIMEOUTS: Final = {
    "statement_timeout": int(STATEMENT_SECONDS * 1000),
    "lock_timeout": int(LOCK_SECONDS * 1000),
    "idle_in_transaction_session_timeout": int(IDLE_SECONDS * 1000),
}
_PLANNING: Final = {
    "jit": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
}
"""All joins look up a short list of keys in a table.

The statistics of a queue are always out of date and would make the planner read whole tables instead, and a cached
plan would do so for as long as it lives.
"""
_FORMS: Final = {
    "bytea_output": "hex",
    "datestyle": "ISO",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
}
"""How values are formatted and parsed."""
_TRANSACTIONS: Final = {
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_read_only": "off",
}
"""For statements outside of transactions; within one, BEGIN sets these."""
_ENCODING: Final = "UTF8"


def _durable(only_here: str) -> str:
    """Return the SQL that has commits acknowledged once they are on disk. A stricter setting is kept."""
    level = "replace(current_setting('synchronous_commit'), 'off', 'on')"
    return f"set_config('synchronous_commit', {level}, {only_here})"


LOCAL_SETTINGS: Final = (
    "SELECT "
    + ", ".join(
        f"set_config('{name}', '{value}', true)"
        for name, value in {**TIMEOUTS, **_PLANNING, **_FORMS}.items()
    )
    + f", {_durable('true')}"
)
"""Sets them until the end of a transaction."""
LIMITED_READ: Final = (
    "SELECT set_config('statement_timeout', '{:d}', true), set_config('lock_timeout', '0', true)"
)
"""Limits the statements that follow in the same transaction, in milliseconds; waits for locks count."""
BEGIN_SHARED: Final = (
    f"RESET ALL; SELECT set_config('client_encoding', '{_ENCODING}', true), "
    "set_config('idle_in_transaction_session_timeout', '{}', true)"
)
"""For the body of a step, on a connection whose last body may have changed any setting."""
JOIN_SHARED: Final = (
    f"RESET search_path; SELECT set_config('client_encoding', '{_ENCODING}', true); {LOCAL_SETTINGS}"
)
"""For our own rows in that transaction, whatever the body has set: our tables, in our encoding."""
CHECK_SESSION: Final = (
    "SELECT pg_backend_pid(), current_setting('synchronous_commit') <> 'off' "
    "AND current_setting('timezone') = 'UTC' AND current_setting('datestyle') LIKE 'ISO%'"
)
"""Returns the process id of the backend, and whether the session has the settings that `options` does not overrule:
PGTZ and PGDATESTYLE of the environment are applied after it.
"""
REPAIR_SESSION: Final = (
    f"SELECT set_config('timezone', 'UTC', false), set_config('datestyle', 'ISO', false), {_durable('false')}"
)

_DEFAULTS: Final = {
    "application_name": "holdfast",
    "connect_timeout": f"{CONNECT_SECONDS:.0f}",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_NUMBERS: Final = (
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
)
_CHOICES: Final = {
    "channel_binding": frozenset({"disable", "prefer", "require"}),
    "gssencmode": frozenset({"disable", "prefer", "require"}),
    "load_balance_hosts": frozenset({"disable", "random"}),
    "sslmode": frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}),
    "sslnegotiation": frozenset({"direct", "postgres"}),
    "target_session_attrs": frozenset(
        {"any", "primary", "read-write"}
    ),  # other values select servers that can't write
}
_HOST: Final = re.compile(r"[^\s@/?#\[\]\\\"'<>]*|/[^\x00-\x1f]*")
_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ESCAPE: Final = (
    "user, password and parameters are written with / @ : # ? & % and spaces escaped, as"
    " urllib.parse.quote(text, safe='') does it"
)


def connection_settings(url: str, *, session_settings: bool = True) -> dict[str, Any]:
    """Return psycopg's arguments for a URL: enforced settings, then those of the URL, then defaults.

    ValueError for an invalid URL, without showing any of it.
    """
    from_url = _parsed_url(url)
    settings = {**_DEFAULTS, **from_url, "client_encoding": _ENCODING}
    if session_settings:
        # The last setting of a name wins.
        words = [f"-c {name}={value}" for name, value in {**TIMEOUTS, **_PLANNING}.items()]
        words += filter(None, [settings.get("options")])
        words += [f"-c {name}={value}" for name, value in {**_FORMS, **_TRANSACTIONS}.items()]
        settings["options"] = " ".join(words)
    return settings


def connect(
    url: str, settings: dict[str, Any], seconds: float, *, autocommit: bool
) -> psycopg.Connection[Any]:
    """Connect within `seconds`, or the `connect_timeout` of the URL.

    TransientError, AccessDeniedError, SchemaError, InvalidUrlError; none of them, nor its cause, contains a secret.
    """
    if settings["connect_timeout"] == _DEFAULTS["connect_timeout"] and seconds < CONNECT_SECONDS:
        settings = {**settings, "connect_timeout": str(math.ceil(max(seconds, CONNECT_SECONDS_MIN)))}
    try:
        return psycopg.connect(**settings, autocommit=autocommit, prepare_threshold=None)
    except (psycopg.OperationalError, OSError) as error:
        message, is_ours = str(error), False
    except (psycopg.Error, ValueError) as error:
        message, is_ours = str(error), True
    message = hide(message.strip(), [*secrets_of(url), *_secrets_in(settings)])
    # Outside the blocks above: the driver's error, which may quote a password, would become this one's context.
    raise (
        InvalidUrlError(f"no connection: {message}; correct the URL") if is_ours else from_connecting(message)
    )


def _parsed_url(url: str) -> dict[str, Any]:
    """Return the parts of a URL. The driver's errors quote passwords, so they are not kept even as a cause."""
    _check_printable(url)  # the driver stops reading at a NUL
    scheme, _, remainder = url.partition("://")
    try:
        parsed = conninfo_to_dict(f"{scheme.partition('+')[0]}://{remainder}")
    except (psycopg.Error, ValueError):
        parsed = None
    if parsed is None:
        why = (
            "a % in it is the beginning of an escape, as %25 for % itself"
            if _PERCENT.search(remainder)
            else _ESCAPE
        )
        raise ValueError(f"it is not a PostgreSQL URL: {why}")
    if "#" in remainder.rpartition("@")[2]:
        raise ValueError(f"it is not a PostgreSQL URL: it has a fragment; {_ESCAPE}")
    _check(parsed)
    return parsed


def _check_printable(text: str) -> None:
    if _CONTROL.search(text):
        raise ValueError("it has characters that can't be printed, such as a line end")


def _check(settings: dict[str, Any]) -> None:
    """Raise ValueError for settings that are invalid, or that Holdfast can't work with. It shows no values."""
    texts = {name: str(value) for name, value in settings.items()}
    for text in texts.values():
        _check_printable(text)
    hosts, ports = texts.get("host", "").split(","), texts.get("port", "").split(",")
    if not all(map(_HOST.fullmatch, hosts)):
        raise ValueError(f"its host is invalid: {_ESCAPE}")
    if not all(
        not port or (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536) for port in ports
    ):
        raise ValueError(f"its port is not a number from 1 to 65535: {_ESCAPE}")
    if len(ports) > 1 and len(ports) != len(hosts):
        raise ValueError("it has several ports, and a different number of hosts")
    for name in (*_NUMBERS, "tcp_user_timeout"):
        if not re.fullmatch(r"[0-9]{1,9}|", texts.get(name, ""), re.ASCII):
            raise ValueError(f"{name} in it is not an integer")
    for name, choices in _CHOICES.items():
        if texts.get(name) not in {None, "", *choices}:
            raise ValueError(f"{name} in it is not one of {', '.join(sorted(choices))}")
    if "replication" in texts:
        raise ValueError("the parameter replication is for connections without transactions")


def _secrets_in(settings: dict[str, Any]) -> list[str]:
    names = ("password", "sslpassword", "passfile")
    return [str(settings[name]) for name in names if settings.get(name)]
