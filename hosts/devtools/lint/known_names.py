"""Names outside the program that a replay cannot repeat, with reasons.

A name is written as it is imported: `datetime.datetime.now`, `builtins.open`. The result of a call is written with
brackets: `pathlib.Path().read_text` is a method of a path.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from holdfast.hosts.devtools.lint.rules import (
    ADDRESSES,
    BLOCKING_SLEEP,
    CHANCE,
    CLOCK,
    ENVIRONMENT,
    EXITS,
    OUTSIDE,
    PRINTS,
    SHARED,
    THREADS,
)

_LOOPS: Final = ("asyncio.get_running_loop()", "asyncio.get_event_loop()", "asyncio.new_event_loop()")


@attrs.frozen
class NameProblem:
    """Why workflows must not use a name: the code of the finding, and the text after the name."""

    code: str
    text: str


def words(text: str) -> tuple[str, ...]:
    """Split a text into words."""
    return tuple(text.split())


def names_in(module: str, names: str) -> tuple[str, ...]:
    """Return the dotted names of what is in a module; `names` has spaces between them."""
    return tuple(f"{module}.{name}" for name in words(names))


def _of_loops(names: str) -> tuple[str, ...]:
    return tuple(name for loop in _LOOPS for name in names_in(loop, names))


_CLOCK: Final = NameProblem(CLOCK, "reads the machine's clock, which returns another time in a replay")
_BLOCKING: Final = NameProblem(BLOCKING_SLEEP, "blocks all runs of this worker, and sleeps again in a replay")
_CHANCE: Final = NameProblem(CHANCE, "returns another value in a replay")
_ENVIRONMENT: Final = NameProblem(ENVIRONMENT, "may return another value where the run is replayed")
_OUTSIDE: Final = NameProblem(OUTSIDE, "does I/O, and does it again in each replay")
_THREADS: Final = NameProblem(THREADS, "leaves the run's event loop, and a replay can't repeat its order")
_EXITS: Final = NameProblem(EXITS, "ends the process, with all of its runs")
_ADDRESSES: Final = NameProblem(ADDRESSES, "returns another value in every process")
_PRINTS: Final = NameProblem(PRINTS, "writes again in each replay")
_SHARED: Final = NameProblem(SHARED, "is created once, and shared by all runs in this process")

# Even a mention of these names is a finding: other code may call what it is handed.
_NAMES: Final[Mapping[str, NameProblem]] = {
    name: why
    for why, names in (
        (
            _CLOCK,
            (
                *names_in("time", "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns"),
                *names_in("time", "process_time process_time_ns thread_time thread_time_ns clock_gettime"),
                *names_in("datetime.datetime", "now utcnow today"),
                "datetime.date.today",
                *names_in("django.utils.timezone", "now localdate localtime"),
                *names_in("pendulum", "now today yesterday tomorrow"),
                *names_in("arrow", "now utcnow"),
                *names_in("pandas.Timestamp", "now utcnow today"),
                *names_in("whenever", "Instant.now ZonedDateTime.now"),
            ),
        ),
        (_BLOCKING, ("time.sleep",)),
        (
            _CHANCE,
            (
                *names_in("uuid", "uuid1 uuid4 uuid6 uuid7 uuid8 getnode"),
                *names_in("os", "urandom getrandom"),
                *names_in("uuid_utils", "uuid1 uuid4 uuid6 uuid7"),
                *names_in("ulid", "new ULID"),
                *names_in("nanoid", "generate"),
                *names_in("shortuuid", "uuid random"),
            ),
        ),
        (
            _ENVIRONMENT,
            (
                *names_in(
                    "os", "environ environb getenv getenvb getpid getppid getcwd getlogin uname cpu_count"
                ),
                *names_in("os", "getuid getloadavg times process_cpu_count sched_getaffinity"),
                *names_in("sys", "argv stdin"),
                *names_in("platform", "node platform system machine release uname python_version processor"),
                *names_in("socket", "gethostname getfqdn"),
                *names_in("getpass", "getuser getpass"),
                *names_in("pathlib.Path", "cwd home"),
                *names_in("locale", "getlocale getdefaultlocale localeconv"),
            ),
        ),
        (
            _OUTSIDE,
            (
                *names_in("builtins", "open input"),
                *names_in("io", "open open_code FileIO"),
                *names_in(
                    "os", "open read write listdir scandir walk stat lstat remove unlink rename replace"
                ),
                *names_in("os", "mkdir makedirs rmdir removedirs link symlink readlink chmod chown truncate"),
                *names_in("os", "system popen access utime pipe sync statvfs"),
                *names_in("os.path", "exists lexists isfile isdir islink ismount getsize getmtime getatime"),
                *names_in("os.path", "getctime realpath samefile expanduser expandvars"),
                *names_in("asyncio", "open_connection open_unix_connection start_server start_unix_server"),
                *names_in("asyncio", "create_subprocess_exec create_subprocess_shell"),
                *names_in("sqlalchemy", "create_engine engine.create_engine"),
                *names_in("sqlalchemy.orm", "Session sessionmaker scoped_session"),
                *names_in("sqlalchemy.ext.asyncio", "create_async_engine AsyncSession async_sessionmaker"),
                *names_in("codecs", "open"),
                *names_in("gzip", "open GzipFile"),
                *names_in("bz2", "open"),
                *names_in("lzma", "open"),
                *names_in("zipfile", "ZipFile"),
                *names_in("tarfile", "open"),
                *names_in("http.client", "HTTPConnection HTTPSConnection"),
                *names_in("urllib.request", "urlopen urlretrieve build_opener"),
                *names_in("webbrowser", "open open_new"),
                *_of_loops(
                    "create_connection create_server create_datagram_endpoint getaddrinfo getnameinfo "
                    "sock_recv sock_sendall sock_connect sock_accept sendfile start_tls "
                    "subprocess_exec subprocess_shell connect_read_pipe connect_write_pipe add_reader "
                    "add_writer create_unix_connection create_unix_server"
                ),
            ),
        ),
        (
            _THREADS,
            (
                *names_in("asyncio", "to_thread run run_coroutine_threadsafe Runner new_event_loop"),
                *names_in("anyio", "run to_thread.run_sync from_thread.run to_process.run_sync"),
                *names_in("asgiref.sync", "sync_to_async async_to_sync"),
                *names_in("starlette.concurrency", "run_in_threadpool"),
                *names_in("fastapi.concurrency", "run_in_threadpool"),
                *names_in("os", "fork forkpty posix_spawn spawnv execv execve"),
                *_of_loops(
                    "run_in_executor run_until_complete run_forever add_signal_handler "
                    "call_soon_threadsafe set_default_executor stop close"
                ),
            ),
        ),
        (
            _EXITS,
            (
                *names_in("sys", "exit"),
                *names_in("os", "_exit abort kill"),
                *names_in("builtins", "exit quit"),
            ),
        ),
        (_ADDRESSES, ("builtins.hash", "builtins.id")),
        (
            _PRINTS,
            (
                "builtins.print",
                *names_in("pprint", "pprint pp"),
                *names_in("traceback", "print_exc print_exception print_stack print_tb print_last"),
                *(
                    name
                    for one in ("stdout", "stderr")
                    for name in names_in(f"sys.{one}", "write writelines buffer")
                ),
                *names_in("click", "echo secho"),
                *names_in("typer", "echo secho"),
                *names_in("rich", "print print_json"),
                *names_in("json", "dump"),
                *names_in("pickle", "dump"),
                *names_in("marshal", "dump"),
                *names_in("tomli_w", "dump"),
                *names_in("numpy", "save savez savez_compressed savetxt"),
            ),
        ),
    )
    for name in names
}

# Only calls into these modules are findings: annotations and handlers may mention their classes.
_MODULES: Final[Mapping[str, NameProblem]] = {
    module: why
    for why, modules in (
        (_CHANCE, "random secrets numpy.random faker"),
        (
            _OUTSIDE,
            (
                "requests httpx aiohttp urllib3 socket smtplib ftplib imaplib poplib telnetlib "
                "xmlrpc.client subprocess shutil tempfile glob fileinput dbm shelve sqlite3 aiosqlite "
                "aiofiles psycopg psycopg2 asyncpg pymysql aiomysql mysql pymongo motor redis boto3 "
                "botocore aioboto3 aiobotocore elasticsearch kafka aiokafka pika aio_pika grpc "
                "paramiko asyncssh stripe openai anthropic slack_sdk twilio sendgrid celery"
            ),
        ),
        (_THREADS, "threading multiprocessing concurrent.futures _thread trio gevent joblib"),
    )
    for module in words(modules)
}
_PLAIN_ENDINGS: Final = words("Error Exception Warning Timeout Limits URL Auth escape compare_digest")
"""Endings of names of classes and functions without external effects."""

_PATH_METHODS: Final = frozenset(
    words(
        "read_text read_bytes write_text write_bytes open exists is_file is_dir is_symlink iterdir "
        "glob rglob walk stat lstat touch mkdir rmdir unlink rename replace resolve samefile "
        "symlink_to hardlink_to readlink chmod owner group expanduser absolute copy move"
    )
)
_FILES: Final = frozenset(
    f"{one}()"
    for one in (
        *names_in("typing", "IO TextIO BinaryIO"),
        *names_in("io", "TextIOWrapper TextIOBase IOBase RawIOBase BufferedWriter"),
    )
)
"""Types of variables that hold a file opened elsewhere, or something with the same methods."""
_FILE_METHODS: Final = frozenset(words("write writelines truncate flush"))
_SEEDED: Final = frozenset({"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"})
"""Random generators that repeat their numbers if they get a seed."""
_OF_NOW: Final = frozenset(names_in("time", "localtime gmtime ctime asctime strftime"))
"""Functions that read the clock when called without a time, which is the second argument of `strftime`."""

_SHARED_WHEN_GLOBAL: Final = frozenset(
    (
        *names_in("asyncio", "Lock() Event() Condition() Semaphore() BoundedSemaphore() Barrier()"),
        *names_in("asyncio", "Queue() PriorityQueue() LifoQueue() Future()"),
        *names_in("itertools", "count() cycle()"),
        *names_in("builtins", "iter()"),
        *names_in("random", "Random()"),
        *names_in("numpy.random", "default_rng() RandomState()"),
    )
)


def why_not_mention(name: str) -> NameProblem | None:
    """Return why a workflow may not even mention a name; None if it may."""
    if name.startswith("asyncio.events."):
        name = "asyncio." + name.removeprefix("asyncio.events.")
    return _NAMES.get(name)


def why_not_call(name: str, arguments: int) -> NameProblem | None:
    """Return why a workflow may not call a name with this number of arguments; None if it may."""
    if name in _OF_NOW:
        return _CLOCK if arguments < (2 if name == "time.strftime" else 1) else None
    if name in _SEEDED:
        return _CHANCE if not arguments else None
    if name.startswith(("pathlib.Path()", "pathlib.PosixPath()")):
        return _OUTSIDE if name.rpartition(".")[2] in _PATH_METHODS else None
    if name.rpartition(".")[0] in _FILES:
        return _PRINTS if name.rpartition(".")[2] in _FILE_METHODS else None
    if name.startswith(tuple(f"{seeded}()" for seeded in _SEEDED)):
        return None
    if name.startswith(("sqlalchemy.create_engine()", "sqlalchemy.orm.", "sqlalchemy.ext.asyncio.")):
        return _OUTSIDE if "()" in name else None
    if name.endswith(_PLAIN_ENDINGS) or ".types." in name:
        return None
    return next((why for module, why in _MODULES.items() if name.startswith(f"{module}.")), None)


def why_not_share(name: str) -> NameProblem | None:
    """Return why a workflow may not use a module-level object; None if it may."""
    return _SHARED if name in _SHARED_WHEN_GLOBAL else None


def is_known(name: str) -> bool:
    """Return whether the table has an entry for a name or its module."""
    return name in _NAMES or name in _OF_NOW or name.startswith(tuple(f"{module}." for module in _MODULES))
