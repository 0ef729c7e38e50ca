"""A process in which Lambda's runtime client serves a handler, and the runtime API that it calls."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import attrs
from typing_extensions import override

ROOT: Final = Path(__file__).resolve().parents[1]
_NEXT: Final = "/2018-06-01/runtime/invocation/next"
_START_SECONDS: Final = 60.0


@attrs.frozen
class Answer:
    """A function's response: a value, or an error with its type. Neither if it was killed."""

    value: Any = None
    error: str | None = None
    killed: bool = False


@attrs.frozen(kw_only=True)
class _Invocation:
    id: str
    event: str
    deadline_ms: int


class Function:
    """A function process served by awslambdaric; frozen between invocations, and killed when time is up.

    Attributes:
        invocations: The number of invocations in this process.
    """

    def __init__(self, handler: str, *, seconds: float, environment: Mapping[str, str]) -> None:
        """Start a process for the handler `module.name`, whose invocations last at most so many seconds."""
        self._seconds = seconds
        self._next: queue.Queue[_Invocation] = queue.Queue()
        self._answers: queue.Queue[Answer] = queue.Queue()
        self._is_waiting = threading.Event()
        self.invocations = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._requests())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "awslambdaric", handler],
            cwd=ROOT,
            env={
                **os.environ,
                **environment,
                "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_port}",
                "AWS_LAMBDA_FUNCTION_NAME": "function",
                "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
                "AWS_LAMBDA_LOG_GROUP_NAME": "logs",
                "AWS_LAMBDA_LOG_STREAM_NAME": "log",
            },
            stdout=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        """Return the function."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Kill the process."""
        self.kill()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def invoke(self, event: Mapping[str, Any]) -> Answer:
        """Thaw the process, pass it an event and a deadline, and freeze it when it asks for the next event."""
        if not self._is_waiting.wait(_START_SECONDS):
            raise TimeoutError("the function does not begin")
        os.kill(self._process.pid, signal.SIGCONT)
        self._is_waiting.clear()
        self.invocations += 1
        deadline = time.time() + self._seconds
        self._next.put(
            _Invocation(
                id=f"request-{self.invocations}", event=json.dumps(event), deadline_ms=round(deadline * 1_000)
            )
        )
        try:
            answer = self._answers.get(timeout=self._seconds)
        except queue.Empty:
            self.kill()
            return Answer(killed=True)
        self._is_waiting.wait(_START_SECONDS)
        os.kill(self._process.pid, signal.SIGSTOP)
        return answer

    def kill(self) -> None:
        """Kill the process, as Lambda does when time is up or the process is not needed."""
        self._process.kill()
        self._process.wait()
        self._server.shutdown()
        self._server.server_close()

    def _requests(self) -> type[BaseHTTPRequestHandler]:
        function = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path != _NEXT:
                    self.send_error(404)
                    return
                function._is_waiting.set()
                invocation = function._next.get()
                body = invocation.event.encode()
                self.send_response(200)
                self.send_header("Lambda-Runtime-Aws-Request-Id", invocation.id)
                self.send_header("Lambda-Runtime-Deadline-Ms", str(invocation.deadline_ms))
                self.send_header(
                    "Lambda-Runtime-Invoked-Function-Arn",
                    "arn:aws:lambda:eu-central-1:123456789012:function:f",
                )
                self.send_header("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null")
                body = b'{"status":"OK"}'
                self.send_response(202)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                if self.path.endswith("/response"):
                    function._answers.put(Answer(said))
                else:
                    function._answers.put(Answer(error=said["errorType"]))
                    function._is_waiting.set() if "init" in self.path else None

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Requests
