"""Asks pyright's language server where a name is meant, in all files."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

ROOT: Final = Path(__file__).resolve().parents[2]


class Place(NamedTuple):
    """Where a text stands: line and character count from 0."""

    path: Path
    line: int
    start: int
    end: int


class LanguageServer:
    """A session with pyright. Files are read from disk, and are not to change meanwhile."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._next = 0
        self._process = subprocess.Popen(
            [Path(sys.executable).parent / "pyright-langserver", "--stdio"],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        folder = {"uri": root.as_uri(), "name": "root"}
        capabilities = {"workspace": {"configuration": True, "workspaceFolders": True}}
        self._ask(
            "initialize",
            {
                "processId": None,
                "rootUri": root.as_uri(),
                "capabilities": capabilities,
                "workspaceFolders": [folder],
            },
        )
        self._tell("initialized", {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def open(self, path: Path) -> None:
        """Have a file analysed."""
        document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text()}
        self._tell("textDocument/didOpen", {"textDocument": document})

    def close(self, path: Path) -> None:
        """Forget a file."""
        self._tell("textDocument/didClose", {"textDocument": {"uri": path.as_uri()}})

    def references(self, path: Path, line: int, character: int) -> set[Place]:
        """Return every place that means what stands here, the definition among them."""
        found = self._ask(
            "textDocument/references",
            {
                "textDocument": {"uri": path.as_uri()},
                "position": {"line": line, "character": character},
                "context": {"includeDeclaration": True},
            },
        )
        return set(_places(found or ()))

    def _ask(self, method: str, params: Mapping[str, object]) -> Any:  # JSON is any of its types
        self._next += 1
        asked = self._next
        self._send({"id": asked, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == asked and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message.get("result")
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": self._answer(message)})

    def _answer(self, message: Mapping[str, Any]) -> object:
        if message["method"] == "workspace/configuration":
            python = {"pythonPath": sys.executable}
            return [python if item.get("section") == "python" else {} for item in message["params"]["items"]]
        return None

    def _tell(self, method: str, params: Mapping[str, object]) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: Mapping[str, object]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        length = 0
        while header := stream.readline().strip():
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not length:
            raise RuntimeError("the language server has ended")
        message: dict[str, Any] = json.loads(stream.read(length))
        return message


def _places(found: "list[dict[str, Any]] | tuple[()]") -> Iterator[Place]:
    for one in found:
        start, end = one["range"]["start"], one["range"]["end"]
        path = Path(unquote(urlsplit(str(one["uri"])).path)).resolve()
        yield Place(path, start["line"], start["character"], end["character"])
