"""A person without JavaScript: opens pages, reads what they show, follows links, fills in forms and sends them."""

from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import httpx
from typing_extensions import override

from holdfast import Engine
from holdfast.http import asgi_app
from tests.integration.http.api import NAMESPACE, authenticate

BASE = f"/ui/namespaces/{NAMESPACE}"


@attrs.define
class Form:
    """A form as the browser has it."""

    action: str
    fields: dict[str, str] = attrs.field(factory=dict[str, str])
    """What is sent if nothing is changed."""
    kinds: dict[str, str] = attrs.field(factory=dict[str, str])
    """The type of each field."""
    required: set[str] = attrs.field(factory=set[str])
    buttons: list[str] = attrs.field(factory=list[str])


class Seen(HTMLParser):
    """A page as a person sees it."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.response = response
        self.status = response.status_code
        self.source = response.text
        self.forms: list[Form] = []
        self.links: list[tuple[str, str]] = []
        """Addresses with their texts."""
        self.tags: list[str] = []
        self.words: list[str] = []
        self._form: Form | None = None
        self._select = self._area = ""
        self._in_button = False
        self._skipped = 0
        self.feed(response.text)

    @property
    def text(self) -> str:
        """All text that is shown, with the titles of links."""
        return " ".join(" ".join(self.words).split())

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        found = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if tag == "a":
            self.links.append((found.get("href", ""), ""))
            self.words.append(found.get("title", ""))
        elif tag == "form" and found.get("method") == "post":
            self._form = Form(found["action"])
            self.forms.append(self._form)
        elif tag in {"input", "select", "textarea", "button", "option"} and self._form is not None:
            self._field(tag, found, self._form)

    def _field(self, tag: str, found: Mapping[str, str], form: Form) -> None:
        name = found.get("name", "")
        if tag == "button":
            form.buttons.append("")
            self._in_button = True
        elif tag == "option":
            if "selected" in found:
                form.fields[self._select] = found["value"]
        else:
            form.fields[name] = found.get("value", "")
            form.kinds[name] = found.get("type", tag)
            if "required" in found:
                form.required.add(name)
            self._select = name if tag == "select" else ""
            self._area = name if tag == "textarea" else ""

    @override
    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element."""
        if tag == "form":
            self._form = None
        self._area = "" if tag == "textarea" else self._area
        self._in_button = False if tag == "button" else self._in_button

    @override
    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.words.append(data)
        if self._form is not None and self._area:
            self._form.fields[self._area] += data.removeprefix("\n")
        if self._form is not None and self._in_button:
            self._form.buttons[-1] += data
        if self.links:
            address, text = self.links[-1]
            self.links[-1] = (address, text + data)

    def form(self, operation: str, number: int = 0) -> Form:
        """Return a form that is sent to a path with this ending."""
        found = [one for one in self.forms if urlsplit(one.action).path.endswith(operation)]
        return found[number]

    def addresses(self) -> Iterator[str]:
        """Yield the addresses of all links."""
        return (address for address, _ in self.links)

    def link(self, text: str) -> str:
        """Return the address of the first link that begins with this text."""
        return next(address for address, shown in self.links if shown.strip().startswith(text))

    def query_of(self, text: str) -> dict[str, list[str]]:
        """Return the query of the first link with this text."""
        return parse_qs(urlsplit(self.link(text)).query)


class Person:
    """Opens pages of the server of an engine."""

    def __init__(self, engine: Engine, by: str = "all", *, read_only: bool = False) -> None:
        server: Any = asgi_app(engine, authenticate=authenticate, read_only=read_only)
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=server, client=("127.0.0.1", 1)),
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {by}", "Accept": "text/html"},
        )

    async def opens(self, path: str, *, status: int = 200) -> Seen:
        """Open a page below that of the namespace."""
        response = await self._client.get(path if path.startswith("/") else f"{BASE}/{path}")
        assert response.status_code == status, response.text
        return Seen(response)

    async def sends(self, form: Form, **changed: str) -> httpx.Response:
        """Send a form, with some fields changed: two underscores in a name stand for a slash."""
        fields = {**form.fields, **{name.replace("__", "/"): text for name, text in changed.items()}}
        return await self._client.post(form.action, data=fields)
