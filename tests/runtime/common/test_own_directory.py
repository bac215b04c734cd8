"""Directories whose content is executed later: another local user may have made them first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tony_provider.runtime.common.files import UnsafeDirectoryError, expect_own_directory, make_own_directory

STRANGER = 4001
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")


def by_stranger(path: Path, mode: int = 0o755) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, STRANGER, STRANGER)
    return path


def test_what_is_missing_is_made_for_this_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        make_own_directory(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    for made in (tmp_path / "a", tmp_path / "a" / "b"):
        assert made.stat().st_mode & 0o777 == 0o700
    make_own_directory(tmp_path / "a" / "b")
    expect_own_directory(tmp_path / "c" / "d")
    assert not (tmp_path / "c").exists()


def test_a_link_of_this_user_s_to_a_directory_of_this_user_s(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    make_own_directory(tmp_path / "link" / "root")
    assert (tmp_path / "disk" / "root").is_dir()


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_directory_that_others_may_write(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(UnsafeDirectoryError, match=r"other users may write to .*open"):
        make_own_directory(tmp_path / "open")


def test_below_a_directory_that_others_may_write(tmp_path: Path) -> None:
    (tmp_path / "open" / "root").mkdir(parents=True)
    for mode, allowed in ((0o1777, True), (0o775, True), (0o777, False)):  # 0775: by this user's own group
        (tmp_path / "open").chmod(mode)
        if allowed:
            make_own_directory(tmp_path / "open" / "root")
            continue
        with pytest.raises(UnsafeDirectoryError, match=r"other users may write to .*open "):
            make_own_directory(tmp_path / "open" / "root")


@needs_root
def test_a_directory_of_another_user(tmp_path: Path) -> None:
    foreign = by_stranger(tmp_path / "foreign")
    for path in (foreign, foreign / "root", foreign / "a" / "b"):
        with pytest.raises(UnsafeDirectoryError, match=f"foreign belongs to user {STRANGER} instead of this user 0"):
            make_own_directory(path)
    assert list(foreign.iterdir()) == []


@needs_root
def test_links_by_another_user_and_to_one_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    foreign = by_stranger(tmp_path / "foreign")
    (tmp_path / "by-stranger").symlink_to("own")
    os.lchown(tmp_path / "by-stranger", STRANGER, STRANGER)
    (tmp_path / "to-stranger").symlink_to(foreign)
    for name in ("by-stranger", "to-stranger"):
        with pytest.raises(UnsafeDirectoryError, match=f"belongs to user {STRANGER}"):
            expect_own_directory(tmp_path / name)


@needs_root
def test_a_group_of_others_may_not_write(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o775)
    os.chown(tmp_path / "shared", 0, STRANGER)
    for path in (tmp_path / "shared", tmp_path / "shared" / "root"):
        with pytest.raises(UnsafeDirectoryError, match=r"other users may write to .*shared "):
            expect_own_directory(path)
