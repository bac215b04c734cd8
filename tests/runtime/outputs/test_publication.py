"""An output on its way to its path, under every crash."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tony_provider.runtime.jobspec.model import OutputCommit, OutputLayout, OutputSpec
from tony_provider.runtime.outputs.publication import OutputPart, OutputPlace, Publication, PublishError, clear_away
from tony_provider.runtime.storage import LocalStorage, Source

ME, BEFORE = "application_1_0002", "application_1_0001"
OLD = {"worker-0/old": "old", "worker-7/old": "old"}
# Of worker:1 start 2 has succeeded; start 1, and what there is of worker:2, only count as far as shards name them.
LEFT = {
    "worker-0.1.1": {"a": "0", "b/c": "0"},
    "worker-1.1.1": {"shard-3": "3", "never-committed": "x"},
    "worker-1.1.2": {"shard-4": "4", "rest": "1"},
    "worker-2.2.3": {"deep/shard-5": "5", "shard-6": "6", ".tony-tmp-0": "half"},
    "worker-9.1.1": {"z": "zombie"},
}
WHOLE = ("worker-0.1.1", "worker-1.1.2")
COMMITTED = [
    ("worker-1.1.1", "shard-3"),
    ("worker-1.1.2", "shard-4"),
    ("worker-2.2.3", "deep/shard-5"),
    ("worker-2.2.3", "shard-6"),
]
BY_TASK = {
    "worker-0/a": "0",
    "worker-0/b/c": "0",
    "worker-1/rest": "1",
    "worker-1/shard-4": "4",
    "worker-1.1.1/shard-3": "3",
    "worker-2.2.3/deep/shard-5": "5",
    "worker-2.2.3/shard-6": "6",
}
FLAT = {"a": "0", "b/c": "0", "rest": "1", "shard-4": "4", "shard-3": "3", "deep/shard-5": "5", "shard-6": "6"}


class CrashError(BaseException):
    """The application master dies."""


class DyingStorage(LocalStorage):
    """Dies at a given change of the store, before or after it has done it."""

    def __init__(self, lives: int, *, after: bool, at_once: bool) -> None:
        self.renames_at_once = at_once
        self._lives = lives
        self._after = after

    def _live(self, change: Any) -> Any:
        self._lives -= 1
        if self._lives < 0 or (self._lives == 0 and not self._after):
            raise CrashError
        result = change()
        if self._lives == 0:
            raise CrashError
        return result

    def write(self, uri: str, source: Source, **more: Any) -> int:
        written: int = self._live(lambda: LocalStorage.write(self, uri, source, **more))
        return written

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        self._live(lambda: LocalStorage.rename(self, source, target, overwrite=overwrite))

    def make_directories(self, uri: str, **more: Any) -> None:
        if not Path(uri.removeprefix("file://")).is_dir():
            self._live(lambda: LocalStorage.make_directories(self, uri, **more))

    def remove(self, uri: str, *, recursive: bool = False) -> bool:
        if not self.exists(uri):
            return False
        return bool(self._live(lambda: LocalStorage.remove(self, uri, recursive=recursive)))


@attrs.frozen
class Field:
    """A directory with what the tasks of an application have left, and perhaps an older output at the path."""

    root: Path
    spec: OutputSpec
    at_once: bool = True

    @classmethod
    def make(cls, root: Path, *, old: bool, at_once: bool = True, **spec: Any) -> Field:
        root.mkdir()
        made = cls(root, OutputSpec(str(root / "out"), **spec), at_once)
        if old:
            mark = {"application_id": BEFORE, "training": "mine", "version": 1}
            fill(root / "out", {**OLD, "_SUCCESS": json.dumps(mark)})
        for part, files in LEFT.items():
            fill(made.staging / part, files)
        return made

    @property
    def place(self) -> OutputPlace:
        return OutputPlace(self.spec.path, ME)

    @property
    def staging(self) -> Path:
        return Path(self.place.staging.removeprefix("file://"))

    def publication(self, lives: int = 10_000, *, after: bool = False) -> Publication:
        storage = DyingStorage(lives, after=after, at_once=self.at_once)
        return Publication(storage, "out", self.spec, self.place, "mine")

    def publish(self, lives: int = 10_000, *, after: bool = False) -> tuple[int | None, int | None]:
        parts = [OutputPart("out", part, len(LEFT[part]), sum(map(len, LEFT[part].values()))) for part in WHOLE]
        done = self.publication(lives, after=after).publish(parts, lambda: iter(COMMITTED))
        return done.files, done.bytes

    def content(self) -> dict[str, str]:
        return {name: text for name, text in files(self.root / "out").items() if not name.startswith("_")}


def fill(directory: Path, content: dict[str, str]) -> None:
    for name, text in content.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def files(directory: Path) -> dict[str, str]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_text() for path in found}


KINDS: dict[str, dict[str, Any]] = {
    "at once": {},
    "flat": {"layout": OutputLayout.FLAT},
    "part by part": {"commit": OutputCommit.TASK},
    "file by file": {"at_once": False},
    "flat, file by file": {"at_once": False, "layout": OutputLayout.FLAT},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("old", [False, True], ids=["new", "over an old one"])
def test_whatever_dies_the_next_one_brings_about_the_same(tmp_path: Path, kind: str, old: bool) -> None:
    wanted = FLAT if "flat" in kind else BY_TASK
    for lives, after in ((lives, after) for lives in range(1, 100) for after in (False, True)):
        field = Field.make(tmp_path / f"{lives}-{after}", old=old, **KINDS[kind])
        died = False
        try:
            field.publish(lives, after=after)
        except CrashError:
            died = True
            if not KINDS[kind] or kind == "flat":  # where it is one rename: all of it or nothing
                assert field.content() in ({}, OLD if old else {}, wanted)
        assert field.publish() == (7, 7)
        assert field.content() == wanted
        assert sorted(path.name for path in field.root.iterdir()) == ["out"]
        assert sorted(path.name for path in (field.root / "out").glob("_*")) == ["_SUCCESS"]
        assert field.publish() == (7, 7)  # by a master that could not say that it had done it
        if not died and after:
            return
    raise AssertionError


@settings(max_examples=40, deadline=None)
@given(deaths=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=6), kind=st.sampled_from(sorted(KINDS)))
def test_any_number_of_masters_may_die(
    tmp_path_factory: pytest.TempPathFactory, deaths: list[tuple[int, bool]], kind: str
) -> None:
    field = Field.make(tmp_path_factory.mktemp("field") / "root", old=True, **KINDS[kind])
    for lives, after in deaths:
        try:
            field.publish(lives, after=after)
        except CrashError:
            continue
    assert field.publish() == (7, 7)
    assert field.content() == (FLAT if "flat" in kind else BY_TASK)


def test_a_job_that_fails_after_all_leaves_what_was_there(tmp_path: Path) -> None:
    for lives, after in itertools.product(range(1, 30), (False, True)):
        field = Field.make(tmp_path / f"{lives}-{after}", old=True)
        try:
            field.publish(lives, after=after)
        except CrashError:
            clear_away(LocalStorage(), field.place)
        assert field.content() in (OLD, BY_TASK)
        assert sorted(path.name for path in field.root.iterdir()) == ["out"]


def test_what_is_not_the_trainings_own_stays(tmp_path: Path) -> None:
    field = Field.make(tmp_path / "field", old=False)
    fill(tmp_path / "field" / "out", {"precious": "1"})
    for attempt in (field.publish, field.publication().open):
        with pytest.raises(PublishError, match=r"^outputs.out.path: .*/out: it is not empty, .*`replace: true`$"):
            attempt()
    assert field.content() == {"precious": "1"}
    replacing = attrs.evolve(field, spec=attrs.evolve(field.spec, replace=True))
    assert replacing.publish() == (7, 7)
    assert replacing.content() == BY_TASK


def test_a_part_that_comes_when_all_is_published_changes_nothing(tmp_path: Path) -> None:
    """Another look at a task that is over: by a thread that waited for the store, or by the next master."""
    field = Field.make(tmp_path / "field", old=True, commit=OutputCommit.TASK)
    part = OutputPart("out", WHOLE[0], 2, 2)
    field.publication().publish_part(part)
    field.publish()
    field.publication().publish_part(part)
    assert field.content() == BY_TASK
    assert sorted(path.name for path in (field.root / "out").glob("_*")) == ["_SUCCESS"]


def test_a_place_that_no_directory_can_take_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Also where what is there may be replaced."""
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    (tmp_path / "nowhere").symlink_to("away")
    for path, why in ((tmp_path / "out", "link"), (tmp_path / "nowhere", "link"), (Path("/proc"), "mount point")):
        spec = OutputSpec(str(path), replace=True)
        publication = Publication(LocalStorage(), "out", spec, OutputPlace(spec.path, ME), "mine")
        with pytest.raises(PublishError, match=rf"^outputs\.out\.path: {path}: .*{why}.*; name (a|the) directory "):
            publication.open()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nowhere", "out", "real"]


def test_two_files_of_a_name_are_named_before_anything_moves(tmp_path: Path) -> None:
    field = Field.make(tmp_path / "field", old=False, layout=OutputLayout.FLAT)
    fill(field.staging / "worker-1.1.2", {"b/c": "another"})
    with pytest.raises(PublishError, match=r"^outputs.out: worker-0.1.1 and worker-1.1.2 have both written b/c; "):
        field.publish()
    assert not (tmp_path / "field" / "out").exists()


def test_what_a_shard_names_and_is_gone_is_said(tmp_path: Path) -> None:
    field = Field.make(tmp_path / "field", old=False)
    (field.staging / "worker-2.2.3" / "shard-6").unlink()
    with pytest.raises(PublishError, match=r"worker-2\.2\.3/shard-6, which a task wrote, does not exist any more"):
        field.publish()
    assert not (tmp_path / "field" / "out").exists()


@pytest.mark.parametrize("layout", OutputLayout)
def test_a_part_that_is_gone_is_said(tmp_path: Path, layout: OutputLayout) -> None:
    """Of a node that does not have the file system mounted."""
    field = Field.make(tmp_path / "field", old=False, layout=layout)
    (field.staging / "worker-0.1.1").rename(tmp_path / "elsewhere")
    with pytest.raises(PublishError, match=r"/worker-0\.1\.1, which a task wrote, .*; all nodes must have .* mounted"):
        field.publish()


def test_a_mark_of_the_tasks_own_does_not_stand_for_ours(tmp_path: Path) -> None:
    for layout, expected in ((OutputLayout.FLAT, FLAT), (OutputLayout.TASKS, BY_TASK)):
        field = Field.make(tmp_path / layout.value, old=False, layout=layout)
        for part in WHOLE:
            fill(field.staging / part, {"_SUCCESS": ""})
        field.publish()
        assert field.content() == {
            **expected,
            **({} if layout is OutputLayout.FLAT else {"worker-0/_SUCCESS": "", "worker-1/_SUCCESS": ""}),
        }
        assert ME in (field.root / "out" / "_SUCCESS").read_text()


@pytest.mark.parametrize("commit", [{}, {"at_once": False}])
def test_a_mark_that_a_shard_names_does_not_stand_for_ours(tmp_path: Path, commit: dict[str, Any]) -> None:
    field = Field.make(tmp_path / "field", old=False, layout=OutputLayout.FLAT, **commit)
    names = ("_SUCCESS", "_tony.json")
    fill(field.staging / "worker-2.2.3", dict.fromkeys(names, "{}"))
    field.publication().publish([], lambda: iter([*COMMITTED, *(("worker-2.2.3", name) for name in names)]))
    assert ME in (field.root / "out" / "_SUCCESS").read_text()
    assert not (field.root / "out" / "_tony.json").exists()


def test_names_need_not_be_text(tmp_path: Path) -> None:
    field = Field.make(tmp_path / "field", old=False, layout=OutputLayout.FLAT)
    name = os.fsdecode(b"\xff")
    fill(field.staging / "worker-0.1.1", {name: "1"})
    field.publish()
    assert field.content() == {**FLAT, name: "1"}


def test_nobody_left_anything(tmp_path: Path) -> None:
    publication = Field.make(tmp_path / "field", old=False).publication()
    done = publication.publish([], empty)
    assert (done.files, done.bytes) == (0, 0)
    assert sorted(files(tmp_path / "field")) == ["out/_SUCCESS"]


def empty() -> Iterator[tuple[str, str]]:
    nothing: Iterable[tuple[str, str]] = ()
    return iter(nothing)
