"""Scans of a directory tree."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ordinary_user import ordinary_user
from tony_provider.runtime.artifacts.manifest import Kind, inner_target, scan


def test_a_missing_directory_is_an_empty_tree(tmp_path: Path) -> None:
    assert scan(tmp_path / "none").nodes == {}
    assert not scan(tmp_path / "none").torn


def test_files_links_and_empty_directories(tmp_path: Path) -> None:
    (tmp_path / "step-1" / "empty").mkdir(parents=True)
    (tmp_path / "step-1" / "model.pt").write_bytes(b"abc")
    (tmp_path / "last").symlink_to("step-1/model.pt")
    tree = scan(tmp_path)
    assert {path: node.kind for path, node in tree.nodes.items()} == {
        "step-1": Kind.DIRECTORY,
        "step-1/empty": Kind.DIRECTORY,
        "step-1/model.pt": Kind.FILE,
        "last": Kind.LINK,
    }
    assert tree.nodes["last"].target == "step-1/model.pt"
    assert (tree.size, tree.left_out, tree.torn) == (3, {}, False)


@pytest.mark.parametrize("change", ["write", "truncate", "replace", "utime", "append"])
def test_every_change_of_a_file_changes_its_version(tmp_path: Path, change: str) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"abc")
    before = scan(tmp_path).nodes["model.pt"]
    found = path.stat()
    while path.stat().st_ctime_ns == found.st_ctime_ns:  # the kernel's clock ticks every few milliseconds
        if change == "write":
            path.write_bytes(b"abd")
        elif change == "truncate":
            os.truncate(path, 3)
        elif change == "append":
            path.write_bytes(b"abcd")
        elif change == "replace":
            (tmp_path / "new").write_bytes(b"abc")
            (tmp_path / "new").replace(path)
        else:  # as programs do that copy a file with its times
            path.write_bytes(b"abd")
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert scan(tmp_path).nodes["model.pt"].version != before.version


def test_what_a_copy_cannot_hold_is_left_out_with_a_reason(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    (directory / "out").symlink_to("../elsewhere")
    (directory / "absolute").symlink_to("/etc/passwd")
    os.mkfifo(directory / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "socket"))
    (directory / os.fsdecode(b"latin-\xe4.pt")).write_bytes(b"x")
    tree = scan(directory)
    assert tree.nodes == {}
    assert tree.left_out == {
        "out": "it is a link that leads out of the directory, to ../elsewhere",
        "absolute": "it is a link that leads out of the directory, to /etc/passwd",
        "pipe": "it is neither a file, a link nor a directory",
        "socket": "it is neither a file, a link nor a directory",
        "latin-?.pt": "its name is not valid UTF-8",
    }


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("x")
    directory = tmp_path / "checkpoints"
    (directory / "real").mkdir(parents=True)
    (directory / "real" / "a").write_text("x")
    (directory / "alias").symlink_to("real")
    (directory / "outside").symlink_to(tmp_path / "elsewhere")
    assert sorted(scan(directory).nodes) == ["alias", "real", "real/a"]


def test_an_absolute_link_into_the_directory_becomes_relative(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    (directory / "a").mkdir(parents=True)
    (directory / "a" / "last").symlink_to(directory / "step-2")
    (directory / "other").symlink_to("/mnt/checkpoints/step-2/model.pt")
    tree = scan(directory, also_called=["/mnt/checkpoints/"])
    assert tree.nodes["a/last"].target == "../step-2"
    assert tree.nodes["other"].target == "step-2/model.pt"


@pytest.mark.parametrize(
    ("path", "target", "inner"),
    [
        ("last", "step-1", "step-1"),
        ("a/last", "../b/./c", "../b/c"),
        ("a/last", "../../b", None),
        ("last", "..", None),
        ("a/last", "..", ".."),
        ("last", ".", "."),
        ("last", "b/../../c", None),
        ("last", "b/../c", "c"),
        ("last", "/base/x", "x"),
        ("last", "/base/../x", None),
        ("last", "/base", "."),
        ("last", "/based/x", None),
        ("last", "", None),
        ("last", "x\0y", None),
        ("last", "x" * 5000, None),
    ],
)
def test_targets_of_links(path: str, target: str, inner: str | None) -> None:
    assert inner_target(path, target, ["/base"]) == inner


@given(
    path=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map("/".join),
    target=st.lists(st.sampled_from(["a", "b", "..", ".", ""]), min_size=1, max_size=6).map("/".join),
)
def test_a_target_goes_up_first_and_stays_inside(path: str, target: str) -> None:
    inner = inner_target(path, target)
    if inner is None:
        return
    parts = inner.split("/")
    ups = len([part for part in parts if part == ".."])
    assert parts[:ups] == [".."] * ups
    assert ups <= path.count("/")
    assert inner_target(path, inner) == inner


def test_excluded_entries(tmp_path: Path) -> None:
    for name in ("logs/a.log", "step-1/a.log", "step-1/model.pt", "tmp/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    tree = scan(tmp_path, exclude=["*.log", "tmp", "step-1/mod*"])
    assert sorted(tree.nodes) == ["logs", "step-1"]
    assert tree.left_out == {}
    assert tree.excluded == ["logs/a.log", "step-1/a.log", "step-1/model.pt", "tmp"]


def test_an_entry_that_vanishes_tears_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "step-1").mkdir()
    original = os.scandir

    def scandir(path: Path) -> object:
        if path == tmp_path / "step-1":
            path.rmdir()
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert scan(tmp_path).torn


def test_a_directory_that_may_be_listed_and_not_entered_is_left_out() -> None:
    with ordinary_user() as directory:
        (directory / "model").write_text("x")
        (directory / "locked").mkdir()
        (directory / "locked" / "model").write_text("x")
        (directory / "locked").chmod(0o400)
        tree = scan(directory)
    assert list(tree.files) == ["model"]
    assert tree.left_out == {"locked/model": "it cannot be read: Permission denied"}
