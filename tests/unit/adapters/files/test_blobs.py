"""Blobs in files: crashes, links, other processes, and the layout on disk."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.adapters.files.blobs import FileBlobStore
from holdfast.ports.errors import BlobMissingError, InvalidKeyError, UnavailableError
from holdfast.testing.conformance.blobs import key_of
from holdfast.testing.conformance.nasty_keys import NASTY_KEYS

KEY = key_of(b"data", "a/b")
NAME = "." + sha256(b"data").hexdigest()

IS_ROOT = os.geteuid() == 0


def _tree(folder: Path) -> dict[str, bytes | str | None]:
    """Return everything below a folder: bytes of files, targets of links, None for folders."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def _run(code: str, *arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with a nested root, and files beside it that must not be touched."""
    (tmp_path / "x" / "root").mkdir(parents=True)
    (tmp_path / "x" / "secret").write_bytes(b"secret")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_bytes(b"root")
    return tmp_path


@pytest.fixture
def root(world: Path) -> Path:
    return world / "x" / "root"


def test_there_are_enough_nasty_keys() -> None:
    assert len(set(NASTY_KEYS)) >= 100


def test_no_key_reaches_anything_outside_the_root(
    world: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world / "etc")
    store = FileBlobStore(root)
    before = _tree(world)
    for key in NASTY_KEYS:
        for attempt in (store.get, store.exists, store.delete):
            with pytest.raises(InvalidKeyError):
                attempt(key)
        with pytest.raises(InvalidKeyError):
            store.put(key, b"")
        assert list(store.list(key)) == []

    assert before == _tree(world)


def test_only_the_blob_and_its_folders_are_on_the_disk(root: Path) -> None:
    FileBlobStore(root).put(KEY, b"data")

    assert {".tmp": None, "a": None, "a/b": None, f"a/b/{NAME}": b"data"} == _tree(root)


def test_others_may_not_read_the_files(root: Path) -> None:
    FileBlobStore(root).put(KEY, b"data")

    modes = {path.stat().st_mode & 0o077 for path in root.rglob("*")}
    assert {0} == modes


def test_folders_that_a_delete_leaves_empty_are_removed(root: Path) -> None:
    store = FileBlobStore(root)
    store.put(KEY, b"data")
    store.put(key_of(b"other", "a"), b"other")
    store.delete(KEY)
    assert not (root / "a" / "b").exists()
    store.delete(key_of(b"other", "a"))

    assert _tree(root) == {".tmp": None}


def test_folders_that_an_interrupted_delete_left_are_removed_by_the_next(root: Path) -> None:
    store = FileBlobStore(root)
    (root / "a" / "b").mkdir(parents=True)
    store.delete(KEY)

    assert _tree(root) == {}


def test_a_root_that_is_a_link_is_followed_once(world: Path, root: Path) -> None:
    (world / "link").symlink_to(root)
    store = FileBlobStore(world / "link")
    store.put(KEY, b"data")

    assert (root / "a" / "b" / NAME).is_file()


def test_a_root_is_made_by_the_first_put_where_there_is_none(tmp_path: Path) -> None:
    FileBlobStore(tmp_path / "not" / "there" / "yet").put(KEY, b"data")

    assert FileBlobStore(tmp_path / "not" / "there" / "yet").get(KEY) == b"data"


def test_before_the_first_put_there_are_no_blobs_and_nothing_is_on_the_disk(tmp_path: Path) -> None:
    store = FileBlobStore(tmp_path / "not" / "there")

    with pytest.raises(BlobMissingError):
        store.get(KEY)
    assert not store.exists(KEY)
    assert list(store.list("")) == []
    store.delete(KEY)
    assert _tree(tmp_path) == {}


def test_blobs_of_another_process_are_seen_before_the_first_put(tmp_path: Path) -> None:
    reader = FileBlobStore(tmp_path / "root")
    FileBlobStore(tmp_path / "root").put(KEY, b"data")

    assert reader.get(KEY) == b"data"


def test_a_root_that_was_made_is_synced_with_all_that_was_made_above_it(tmp_path: Path) -> None:
    synced: list[str] = []
    root = tmp_path / "not" / "there"
    FileBlobStore(root, fsync=lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}"))).put(
        KEY, b"data"
    )

    assert {str(tmp_path), str(tmp_path / "not"), str(root)} <= set(synced)


# Links and other things in the place of files --------------------------------------------------------------------


def test_a_link_in_the_place_of_a_blob_is_not_read(world: Path, root: Path) -> None:
    store = FileBlobStore(root)
    (world / "same").write_bytes(b"data")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / NAME).symlink_to(world / "same")

    assert not store.exists(KEY)
    assert list(store.list("")) == []
    with pytest.raises(BlobMissingError):
        store.get(KEY)


def test_a_link_in_the_place_of_a_blob_is_not_written_through(world: Path, root: Path) -> None:
    store = FileBlobStore(root)
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / NAME).symlink_to(world / "etc" / "passwd")
    store.put(KEY, b"data")

    assert store.get(KEY) == b"data"
    assert (world / "etc" / "passwd").read_bytes() == b"root"


def test_a_link_in_the_place_of_a_folder_is_not_followed(world: Path, root: Path) -> None:
    store = FileBlobStore(root)
    (world / "b").mkdir()
    (world / "b" / NAME).write_bytes(b"data")
    (root / "a").symlink_to(world)
    before = _tree(world)

    assert not store.exists(KEY)
    assert list(store.list("")) == []
    assert list(store.list("a/b/")) == []
    with pytest.raises(BlobMissingError):
        store.get(KEY)
    store.delete(KEY)
    with pytest.raises(UnavailableError):
        store.put(KEY, b"data")
    assert {**before, "x/root/.tmp": None} == _tree(world)


def test_a_link_in_the_place_of_the_temporary_folder_is_not_followed(world: Path, root: Path) -> None:
    (root / ".tmp").symlink_to(world / "etc")
    before = _tree(world)

    with pytest.raises(UnavailableError):
        FileBlobStore(root).put(KEY, b"data")
    assert before == _tree(world)


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_what_is_no_regular_file_is_no_blob(root: Path, what: str) -> None:
    store = FileBlobStore(root)
    (root / "a" / "b").mkdir(parents=True)
    place = root / "a" / "b" / NAME
    if what == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)

    assert not store.exists(KEY)
    assert list(store.list("")) == []
    with pytest.raises(BlobMissingError):
        store.get(KEY)
    store.delete(KEY)
    assert place.exists()


def test_files_that_are_no_blobs_are_not_listed(root: Path) -> None:
    store = FileBlobStore(root)
    store.put(KEY, b"data")
    for name in ("README", ".hidden", "é", NAME[1:], NAME + "x", NAME.upper()):
        (root / "a" / name).write_bytes(b"")
    (root / "a" / ".folder").mkdir()
    (root / "a" / ".folder" / NAME).write_bytes(b"data")

    assert list(store.list("")) == [KEY]


# Failures --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
def test_a_folder_that_can_not_be_written_is_unavailable(root: Path) -> None:
    store = FileBlobStore(root)
    root.chmod(0o500)
    try:
        with pytest.raises(UnavailableError, match="store a blob"):
            store.put(KEY, b"data")
    finally:
        root.chmod(0o700)


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
@pytest.mark.parametrize("below", ["", "below", "below/that"])
def test_a_root_that_can_not_be_written_or_made_is_unavailable_at_once(root: Path, below: str) -> None:
    root.chmod(0o500)
    try:
        with pytest.raises(UnavailableError, match=r"root.* as the folder of blobs: Permission denied"):
            FileBlobStore(root / below)
    finally:
        root.chmod(0o700)


@pytest.mark.parametrize("below", ["", "below", "below/that"])
def test_a_root_that_is_a_file_or_below_one_is_unavailable_at_once(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(UnavailableError, match="Not a directory"):
        FileBlobStore(tmp_path / "file" / below)


def test_a_disk_that_fails_to_sync_leaves_nothing_behind(root: Path) -> None:
    def fail(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(5, "Input/output error")

    store = FileBlobStore(root, fsync=fail)
    with pytest.raises(UnavailableError, match="Input/output error"):
        store.put(KEY, b"data")

    assert not store.exists(KEY)
    assert list((root / ".tmp").iterdir()) == []


def test_a_folder_that_vanishes_during_a_put_is_made_again(root: Path) -> None:
    """As if another process deleted the last blob of the folder and pruned it."""
    vanished: list[str] = []

    def sync(file: int) -> None:
        if not vanished and (root / "a" / "b").exists():
            vanished.append("a/b")
            (root / "a" / "b").rmdir()
            (root / "a").rmdir()

    store = FileBlobStore(root, fsync=sync)
    store.put(KEY, b"data")

    assert vanished == ["a/b"]
    assert store.get(KEY) == b"data"
    assert list((root / ".tmp").iterdir()) == []


def test_a_root_that_vanishes_is_unavailable(root: Path) -> None:
    """Its blobs are lost: an operator must know, so the root is not recreated silently."""
    store = FileBlobStore(root)
    store.put(KEY, b"data")
    shutil.rmtree(root)

    with pytest.raises(UnavailableError):
        store.put(KEY, b"data")
    with pytest.raises(BlobMissingError):
        store.get(KEY)
    assert list(store.list("")) == []


def test_the_file_is_synced_before_it_has_its_name_and_every_folder_after(root: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def sync(file: int) -> None:
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{file}"), root)
        seen.append((".tmp/*" if path.startswith(".tmp/") else path, (root / "a" / "b" / NAME).exists()))

    FileBlobStore(root, fsync=sync).put(KEY, b"data")

    assert seen.pop(0) == ("..", False)  # another process may have made the root just now
    assert seen[0] == (".tmp/*", False)
    assert {("a/b", True), ("a", True), (".", True)} == set(seen[1:])


def test_a_put_of_what_is_there_syncs_what_somebody_else_may_not_have(root: Path) -> None:
    FileBlobStore(root, fsync=lambda _: None).put(KEY, b"data")
    synced: list[str] = []
    FileBlobStore(root, fsync=lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}"))).put(
        KEY, b"data"
    )

    assert {str(root / "a" / "b"), str(root / "a"), str(root)} <= set(synced)


def test_old_temporary_files_are_removed_and_young_ones_left(root: Path) -> None:
    FileBlobStore(root).put(KEY, b"data")
    old, young = root / ".tmp" / "old", root / ".tmp" / "young"
    for path in (old, young):
        path.write_bytes(b"half a blo")
    two_days_ago = young.stat().st_mtime - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    an_hour_ago = two_days_ago + 47 * 3600
    os.utime(young, (an_hour_ago, an_hour_ago))
    FileBlobStore(root).put(KEY, b"data")

    assert [young] == list((root / ".tmp").iterdir())


def test_no_descriptor_is_left_open(root: Path) -> None:
    store = FileBlobStore(root)
    store.put(KEY, b"data")
    before = len(os.listdir("/proc/self/fd"))
    for number in range(30):
        key = key_of(b"%d" % number, "a/b/c")
        store.put(key, b"%d" % number)
        store.get(key)
        list(store.list("a/"))
        store.delete(key)
        with pytest.raises(BlobMissingError):
            store.get(key)

    assert before == len(os.listdir("/proc/self/fd"))


# Other processes -------------------------------------------------------------------------------------------------

_WRITER = """
import sys
from hashlib import sha256
from itertools import count
from holdfast.adapters.files.blobs import FileBlobStore

store = FileBlobStore(sys.argv[1])
for number in count():
    data = (b"%d " % number) * 50_000
    key = f"a/{number % 7}/{sha256(data).hexdigest()}"
    store.put(key, data)
    print(key, flush=True)
"""

_SHARER = """
import sys
from hashlib import sha256
from holdfast.adapters.files.blobs import FileBlobStore

store = FileBlobStore(sys.argv[1])
for number in range(150):
    data = b"%d" % (number % 10)
    key = f"shared/{number % 3}/{sha256(data).hexdigest()}"
    store.put(key, data)
    if sys.argv[2] == "delete":
        store.delete(key)
    own = f"own/{sys.argv[3]}/{sha256(data).hexdigest()}"
    store.put(own, data)
    assert store.get(own) == data
print("done", flush=True)
"""


@pytest.fixture
def killed_root(root: Path) -> tuple[Path, list[str]]:
    """A root in which three writers were killed, and the keys that they had reported."""
    reported: list[str] = []
    for after in (3, 8, 15):
        with _run(_WRITER, str(root)) as writer:
            assert writer.stdout is not None
            reported += [writer.stdout.readline().strip() for _ in range(after)]
            writer.send_signal(signal.SIGKILL)
            reported += [line.strip() for line in writer.stdout if line.endswith("\n")]
    return root, reported


@pytest.mark.slow
def test_what_was_put_before_a_kill_is_there_and_nothing_is_torn(killed_root: tuple[Path, list[str]]) -> None:
    root, reported = killed_root
    store = FileBlobStore(root)
    listed = list(store.list(""))

    assert len(reported) >= 26
    assert set(reported) <= set(listed)
    for key in listed:
        assert store.get(key)


@pytest.mark.slow
def test_several_processes_share_a_root(root: Path) -> None:
    sharers = [_run(_SHARER, str(root), how, str(at)) for at, how in enumerate(("keep", "delete", "delete"))]
    answers = [sharer.communicate(timeout=60)[0] for sharer in sharers]

    assert answers == ["done\n"] * 3
    store = FileBlobStore(root)
    keys = list(store.list("own/"))
    assert len(keys) == 30
    assert all(store.get(key) for key in (*keys, *store.list("")))
