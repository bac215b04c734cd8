"""Copies of event files, of stores that grow, shrink, lie, and end."""

from __future__ import annotations

import io
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from tony_provider.runtime.event_files import event_file_mirror
from tony_provider.runtime.event_files.event_file_mirror import EventFileMirror, MirrorRound
from tony_provider.runtime.storage import FileStatus, LocalStorage, StorageUnreachable
from tony_provider.runtime.storage.object_store import ObjectStorage

EVENTS = "events.out.tfevents.1.host"
MOST = 1000


def mirror_of(directory: Path, source: str, storage: Any = None, **more: Any) -> EventFileMirror:
    return EventFileMirror(storage or LocalStorage(), {source: directory}, MOST, **more)


def look(mirror: EventFileMirror) -> MirrorRound:
    return mirror.round(threading.Event())


def files(directory: Path) -> dict[str, bytes]:
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    directory.mkdir()
    return directory


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


def test_of_an_object_store(here: Path) -> None:
    source = "s3://store/events"
    storage = ObjectStorage(source, MemoryStore())
    mirror = mirror_of(here, source, storage)
    assert look(mirror) == MirrorRound()  # nobody has written anything yet
    for data, copied in ((b"one", 3), (b"one, two", 5)):
        storage.write(f"{source}/worker-0/train/{EVENTS}", data, overwrite=True)
        done = look(mirror)
        assert (done.files, done.bytes, done.trouble) == (1, copied, None)
    assert files(here) == {f"worker-0/train/{EVENTS}": b"one, two"}
    assert look(mirror).files == 0
    storage.close()


def test_several_places_share_the_room(store: Path, tmp_path: Path) -> None:
    places = {}
    for name, size in (("a", 600), ("b", 600), ("c", 300)):
        (store / name).mkdir()
        (store / name / EVENTS).write_bytes(b"x" * size)
        places[f"file://{store}/{name}"] = tmp_path / "here" / name
    mirror = EventFileMirror(LocalStorage(), places, MOST)
    done = look(mirror)
    assert (done.files, done.bytes, done.left_out) == (2, 900, 1)
    assert [mirror.held(directory) for directory in places.values()] == [(1, 600), (0, 0), (1, 300)]
    (store / "a" / EVENTS).write_bytes(b"x" * 701)
    assert look(mirror).left_out == 2  # it would not fit any more, and stays as it is here


def test_what_became_shorter_is_copied_anew(store: Path, here: Path) -> None:
    mirror = mirror_of(here, f"file://{store}")
    for data in (b"longer", b"new"):
        (store / EVENTS).write_bytes(data)
        look(mirror)
        assert files(here) == {EVENTS: data}


def test_links_and_pipes_lead_neither_out_nor_on_for_ever(store: Path, here: Path, tmp_path: Path) -> None:
    (store / "loop").symlink_to(store)
    (store / EVENTS).symlink_to("/dev/zero")
    os.mkfifo(store / f"{EVENTS}.pipe")
    (store / f"{EVENTS}.2").write_bytes(b"two")
    look(mirror_of(here, f"file://{store}"))
    found = files(here)
    assert found.pop(f"{EVENTS}.2") == b"two"
    assert len(found) < 100
    assert {data for name, data in found.items() if not name.endswith(".2")} == {b""}


@attrs.define
class Lying(LocalStorage):
    """A store whose lists hold these names."""

    names: list[str]

    def list(self, uri: str) -> list[FileStatus]:
        return [FileStatus(f"{uri}/{name}", 3, 1, False, "", None) for name in self.names]

    def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> Any:
        return io.BytesIO(b"evil")


def test_no_link_leads_out_of_the_store(store: Path, here: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / EVENTS).write_bytes(b"private")
    (store / EVENTS).write_bytes(b"one")
    (store / "loop").symlink_to(store)
    (store / "out").symlink_to(tmp_path / "elsewhere")
    (store / f"{EVENTS}.2").symlink_to(tmp_path / "elsewhere" / EVENTS)
    assert look(mirror_of(here, str(store))).trouble is None
    assert files(here) == {EVENTS: b"one"}


@given(st.lists(st.text(st.sampled_from("./\\~\0ab\udc80"), max_size=8), max_size=5))
def test_no_name_leads_out_of_the_directory(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as top:
        here = Path(top, "one", "two", "three")
        look(mirror_of(here, "file:///store", Lying(["..", "../up", "../../up", "/tmp/x", *names])))
        below = [path for path in Path(top).rglob("*") if path.is_file()]
        assert all(here in path.parents for path in below)
        assert {"up", "x"} <= {path.name for path in below}


def test_a_store_without_end_is_looked_at_so_far(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file_mirror, "MOST_FILES", 20)
    done = look(mirror_of(here, "file:///store", Lying([f"{EVENTS}.{number}" for number in range(50)])))
    assert (len(files(here)), done.is_cut, done.left_out) == (20, True, 0)


@attrs.define
class Failing(LocalStorage):
    fails: set[str] = attrs.field(factory=set)

    def open_read(self, uri: str, **more: Any) -> Any:
        if uri.rpartition("/")[2] in self.fails:
            raise StorageUnreachable(uri, "read", "it is gone")
        return super().open_read(uri, **more)


def test_what_fails_goes_on_where_it_was(store: Path, here: Path) -> None:
    storage = Failing()
    mirror = mirror_of(here, f"file://{store}", storage)
    (store / EVENTS).write_bytes(b"one")
    look(mirror)
    (store / EVENTS).write_bytes(b"one, two")
    storage.fails.add(EVENTS)
    with pytest.raises(StorageUnreachable):
        look(mirror)
    storage.fails.clear()
    done = look(mirror)
    assert (done.files, done.bytes, files(here)) == (1, 5, {EVENTS: b"one, two"})


def test_a_file_that_cannot_be_written_here_does_not_hold_up_the_others(store: Path, here: Path) -> None:
    (store / "a").mkdir()
    for name in ("a/one", "b"):
        (store / name).write_bytes(b"one")
    here.mkdir()
    (here / "a").write_text("in the way")
    done = look(mirror_of(here, f"file://{store}"))
    assert isinstance(done.trouble, OSError)
    assert files(here)["b"] == b"one"


def test_a_copy_that_is_given_up_is_made_again(store: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / "profile.json").write_bytes(b"x" * 100)
    mirror, given_up = mirror_of(here, str(store)), threading.Event()

    def pour(*arguments: Any) -> int:
        given_up.set()
        return whole(*arguments)

    with monkeypatch.context() as during:
        whole = event_file_mirror._pour
        during.setattr(event_file_mirror, "_pour", pour)
        mirror.round(given_up)
    look(mirror)
    assert files(here) == {"profile.json": b"x" * 100}
