"""HTML as typed values: text is always escaped, and addresses are only those that `links` has made.

No function takes markup as text, so no value of a user can become an element, an attribute or a script.
"""

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final, TypeAlias

import attrs


@attrs.frozen
class Html:
    """Markup that this module has made."""

    markup: str


@attrs.frozen
class Link:
    """An address of this server, relative to its host. `links` makes them."""

    address: str


Node: TypeAlias = Html | str | int | None
"""What an element contains. A text is escaped, None is left out."""
Content: TypeAlias = Node | Iterable[Node]
Attribute: TypeAlias = str | int | bool | Link | None
"""The value of an attribute. True: it stands without a value. False and None: it is left out."""

_ADDRESSES: Final = frozenset({"href", "src", "action", "formaction", "data-watch", "poster", "cite"})
"""Attributes that take a `Link` and nothing else."""
_REFUSED: Final = frozenset({"style", "srcdoc", "srcset", "ping", "background"})
_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
_REFUSED_TAGS: Final = frozenset({"style", "iframe", "object", "embed", "base"})
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the order of the text around them."""


def el(tag: str, *content: Content, **attributes: Attribute) -> Html:
    """Return an element.

    Args:
        tag: Its name.
        content: What it contains.
        attributes: Its attributes. `class_` and `for_` stand for reserved words, and `data_key` for `data-key`.

    Raises:
        ValueError: The element, or an attribute, could run a script or load something from elsewhere.
    """
    if tag in _REFUSED_TAGS:
        raise ValueError(f"<{tag}> is not used in pages")
    opening = f"<{tag}{''.join(_attributes(attributes))}>"
    if tag in _VOID:
        return Html(opening)
    return Html(f"{opening}{''.join(map(_markup, _flat(content)))}</{tag}>")


def join(*content: Content) -> Html:
    """Return several nodes as one."""
    return Html("".join(map(_markup, _flat(content))))


def document(head: Html, body: Html, **attributes: Attribute) -> bytes:
    """Return a whole page in UTF-8."""
    return f"<!doctype html>\n{el('html', head, body, **attributes).markup}\n".encode()


def shown_text(text: str) -> str:
    """Return a text as it can be shown: characters that reorder or hide text around them are written out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(one) for one in text)


def _shown(char: str) -> str:
    if char in _BIDIRECTIONAL or "\ud800" <= char <= "\udfff" or (ord(char) < 32 and char not in "\n\t"):
        return f"\\u{ord(char):04x}"
    return char


def _flat(content: Iterable[Content]) -> Iterator[Node]:
    for one in content:
        if one is None or isinstance(one, Html | str | int):
            yield one
        else:
            yield from one


def _markup(node: Node) -> str:
    if node is None:
        return ""
    return node.markup if isinstance(node, Html) else escape(shown_text(str(node)), quote=False)


def _attributes(given: dict[str, Attribute]) -> Iterator[str]:
    for key, value in given.items():
        name = key.rstrip("_").replace("_", "-")
        if name.startswith("on") or name in _REFUSED:
            raise ValueError(f"the attribute {name!r} is not used in pages")
        if value is None or value is False:
            continue
        if isinstance(value, Link) != (name in _ADDRESSES):
            raise ValueError(f"{name!r} takes a link, and nothing else does")
        if value is True:
            yield f" {name}"
        else:
            text = value.address if isinstance(value, Link) else shown_text(str(value))
            yield f' {name}="{escape(text)}"'
