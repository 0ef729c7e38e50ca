"""Malformed blob keys, which try to escape a root folder, have special meanings, or confuse a file system."""

from hashlib import sha256
from typing import Final

from holdfast.ports.blobs import BLOB_KEY_MAX

EMPTY_HASH: Final = sha256(b"").hexdigest()

_RELATIVE = ("/", "//", ".", "..", "./", "../", "../../", "../../../../../../etc/x/", "a/../", "a/../../")
_DOTTED = ("a/./", "a//", "a/.../", ".hidden/", "a/.hidden/", "..a/", "a/..b/", ".tmp/", "a/.tmp/", ". ./")
_ABSOLUTE = (
    "/etc/",
    "/opt/",
    "~/",
    "~root/",
    "file:///",
    "a:b/",
    "C:\\",
    "C:/",
    "C:",
    "\\\\server\\share\\",
)
_BACKSLASHED = ("\\", "..\\", "..\\..\\", "a\\..\\", "a\\b/")
_ENCODED = (
    "%2e%2e/",
    "%2e%2e%2f",
    "..%2f",
    "..%5c",
    "%252e%252e/",
    "..%c0%af",
    "..%00/",
    "a%2f..%2f",
    "%00/",
)
_CONTROLS = ("\x00/", "a\x00/", "../\x00", "a/\x00/../", "\n/", "a\n/", "a\r\n/", "\t/", "a\x1b[2J/", "\x7f/")
_BLANKS = (" /", " a/", "a /", "a b/", "../ /", ".. /", " ../", "a/ ../")
_LIKE_DOTS = (
    "\uff0e\uff0e/",
    "\u2025/",
    "\u2024\u2024/",
    "\u3002\u3002/",
    "..\u200b/",
    "\u200b../",
    "\ufeff../",
)
_LIKE_SLASHES = ("..\uff0f", "..\u2215", "..\u2044", "a\uff0f../", "\u29f8", "..\u29f5")
_UNICODE = (
    "é/",
    "日本/",
    "😀/",
    "\u202e/",
    "\ufeff/",
    "\ud800/",
    "a\udc80/",
    "e\u0301/",
    "\u0130/",
    "\u017f/",
)
_OPTIONS = ("-/", "-rf/", "--help/", "=/", "@/", "+/")
_PATTERNS = ("*/", "a*/", "?/", "a?/", "[a]/", "{a,b}/", "a~/", "a^b/", "#/", "!/", "a,b/")
_SHELL = ("$HOME/", "`id`/", "$(id)/", "a;b/", "a|b/", "a&b/", "a>b/", "'/", '"/', "a'b/", "<a>/")
_LONG = ("x" * 201 + "/", "x" * BLOB_KEY_MAX + "/", "a/" * 500, "../" * 200, "/" * 100, "." * 100 + "/")
_PREFIXES = (
    *(*_RELATIVE, *_DOTTED, *_ABSOLUTE, *_BACKSLASHED, *_ENCODED, *_CONTROLS, *_BLANKS),
    *(*_LIKE_DOTS, *_LIKE_SLASHES, *_UNICODE, *_OPTIONS, *_PATTERNS, *_SHELL, *_LONG),
)

_WITHOUT_HASH = ("", ".", "..", "/", "../", "a", "a/", "a/b", "../../etc/passwd", "~/.ssh/id_ed25519", "\x00")
_ENDINGS = ("/", "/..", "/.", "/../x", "\n", "\x00", " ", ".", "%00", "0")
_ODD_HASHES = (
    EMPTY_HASH[:-1],
    EMPTY_HASH.upper(),
    EMPTY_HASH[:-1] + "g",
    "." + EMPTY_HASH,
    EMPTY_HASH[:-1] + "\uff10",
)

NASTY_KEYS: Final = (
    *(prefix + EMPTY_HASH for prefix in _PREFIXES),
    *_WITHOUT_HASH,
    *(f"a/{EMPTY_HASH}{ending}" for ending in _ENDINGS),
    *(f"a/{odd}" for odd in _ODD_HASHES),
)
"""Malformed keys. Valid hashes in them are those of empty bytes."""
