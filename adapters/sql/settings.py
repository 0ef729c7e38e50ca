"""What a connection to PostgreSQL is opened with: what the URL says, and what must be ours whatever it says.

Ids are sent and read as UTF-8, a commit that was answered is on a disk, and a transaction may write: where the URL, the
environment, the role or the database says otherwise, it is overruled. Timeouts and plans are only defaults.
"""

import math
import re
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.adapters.sql.errors import from_connecting
from holdfast.ports.errors import InvalidUrlError
from holdfast.ports.urls import hide, secrets_of

STATEMENT_SECONDS: Final = 5.0
LOCK_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
CONNECT_SECONDS_MIN: Final = 2.0
"""The driver waits no shorter for a connection, so a call may take that much longer than its caller wants to wait."""

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
"""Says all of it, whatever the server, the role or the session would do by itself."""
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
"""All our joins go from a short list into a table by its key. A queue's statistics are always out of date, and would
lead the planner to read whole tables instead; a plan that is kept would do so for as long as it is."""
_FORMS: Final = {
    "bytea_output": "hex",
    "datestyle": "ISO",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
}
"""How values are read and written."""
_TRANSACTIONS: Final = {
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_read_only": "off",
}
"""Of statements that stand alone. In transactions BEGIN says it."""
_ENCODING: Final = "UTF8"


def _durable(only_here: str) -> str:
    """Return what has commits answered once they are on a disk. What waits for more than that stays as it is."""
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
"""For the rest of a transaction."""
BEGIN_SHARED: Final = (
    f"RESET ALL; SELECT set_config('client_encoding', '{_ENCODING}', true), "
    "set_config('idle_in_transaction_session_timeout', '{}', true)"
)
"""For a body of a step, which may have a connection whose last body has set what it liked."""
JOIN_SHARED: Final = (
    f"RESET search_path; SELECT set_config('client_encoding', '{_ENCODING}', true); {LOCAL_SETTINGS}"
)
"""For our own rows in that transaction, whatever the body has set: our tables, in our encoding."""
CHECK_SESSION: Final = (
    "SELECT pg_backend_pid(), current_setting('synchronous_commit') <> 'off' "
    "AND current_setting('timezone') = 'UTC' AND current_setting('datestyle') LIKE 'ISO%'"
)
"""Which process answers; and whether a session is as it must be in what `options` don't overrule: those of the
environment, PGTZ and PGDATESTYLE, come after them."""
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
    "target_session_attrs": frozenset({"any", "primary", "read-write"}),  # the others can't write
}
_HOST: Final = re.compile(r"[^\s@/?#\[\]\\\"'<>]*|/[^\x00-\x1f]*")
_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_ESCAPE: Final = (
    "user, password and parameters are written with / @ : # ? & % and spaces escaped, as"
    " urllib.parse.quote(text, safe='') does it"
)


def connection_settings(url: str, *, session_settings: bool = True) -> dict[str, Any]:
    """Return psycopg's arguments for a URL: what must be ours, then what the URL says, then what we would say.

    ValueError, which shows nothing of the URL, if it can't be one.
    """
    from_url = _parsed_url(url)
    settings = {**_DEFAULTS, **from_url, "client_encoding": _ENCODING}
    if session_settings:
        # The server takes what comes last.
        words = [f"-c {name}={value}" for name, value in {**TIMEOUTS, **_PLANNING}.items()]
        words += filter(None, [settings.get("options")])
        words += [f"-c {name}={value}" for name, value in {**_FORMS, **_TRANSACTIONS}.items()]
        settings["options"] = " ".join(words)
    return settings


def connect(
    url: str, settings: dict[str, Any], seconds: float, *, autocommit: bool
) -> psycopg.Connection[Any]:
    """Connect, in so many seconds at most, or as many as the URL says.

    TransientError, AccessDeniedError, SchemaError, InvalidUrlError: none of them, nor what caused them, has a secret.
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
    # Not in the blocks above: what the driver has said would be the context of what is said of it.
    raise (
        InvalidUrlError(f"no connection: {message}; correct the URL") if is_ours else from_connecting(message)
    )


def _parsed_url(url: str) -> dict[str, Any]:
    """Return what a URL says. The driver's own errors quote passwords, so that they are not even the cause of ours."""
    _check_printable(url)  # the driver reads no further than a NUL
    scheme, _, rest = url.partition("://")
    try:
        parsed = conninfo_to_dict(f"{scheme.partition('+')[0]}://{rest}")
    except (psycopg.Error, ValueError):
        parsed = None
    if parsed is None:
        why = (
            "a % in it is the beginning of an escape, as %25 for % itself"
            if _PERCENT.search(rest)
            else _ESCAPE
        )
        raise ValueError(f"it is no PostgreSQL URL: {why}")
    if "#" in rest.rpartition("@")[2]:
        raise ValueError(f"it is no PostgreSQL URL: it has a fragment; {_ESCAPE}")
    _check(parsed)
    return parsed


def _check_printable(text: str) -> None:
    if _CONTROL.search(text):
        raise ValueError("it has characters that can't be printed: a line end, say")


def _check(settings: dict[str, Any]) -> None:
    """ValueError for what no server would be asked for, or what can't be ours. It shows no values."""
    texts = {name: str(value) for name, value in settings.items()}
    for text in texts.values():
        _check_printable(text)
    hosts, ports = texts.get("host", "").split(","), texts.get("port", "").split(",")
    if not all(map(_HOST.fullmatch, hosts)):
        raise ValueError(f"the host in it can't be: {_ESCAPE}")
    if not all(
        not port or (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536) for port in ports
    ):
        raise ValueError(f"the port in it is no number from 1 to 65535: {_ESCAPE}")
    if len(ports) > 1 and len(ports) != len(hosts):
        raise ValueError("it has several ports, and another number of hosts")
    for name in (*_NUMBERS, "tcp_user_timeout"):
        if not re.fullmatch(r"[0-9]{1,9}|", texts.get(name, ""), re.ASCII):
            raise ValueError(f"{name} in it is no whole number")
    for name, choices in _CHOICES.items():
        if texts.get(name) not in {None, "", *choices}:
            raise ValueError(f"{name} in it is none of {', '.join(sorted(choices))}")
    if "replication" in texts:
        raise ValueError("replication in it is for connections that have no transactions")


def _secrets_in(settings: dict[str, Any]) -> list[str]:
    names = ("password", "sslpassword", "passfile")
    return [str(settings[name]) for name in names if settings.get(name)]
