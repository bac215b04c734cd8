from __future__ import annotations

import os
from pathlib import Path

import pytest

from tony_provider.runtime.common.files import keep_newest, write_private_file


def test_a_private_file_is_its_owners_alone_and_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_exists_may_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    write_private_file(path, b"first", replace=False)
    write_private_file(path, b"second", replace=False)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_system_without_hard_links_has_it_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "archive"
    write_private_file(path, b"first", replace=False)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_the_newest_files_are_kept(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / str(number)
        path.write_text("")
        os.utime(path, (number, number))
    keep_newest(tmp_path.iterdir(), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]
