"""Directories on their way to the store as plain files."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import attrs
import pytest

from tony_provider.runtime.artifacts.upload import DirectoryUpload, publish_directory
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.storage import LocalStorage, Source


@attrs.define(eq=False)
class Stopped(LocalStorage):
    """A store whose user stops the upload while a file is sent."""

    cancelled: threading.Event

    def write(self, uri: str, source: Source, **more: Any) -> int:
        self.cancelled.set()
        return super().write(uri, source, **more)


def test_a_cancellation_ends_the_copy_of_a_file_and_leaves_nothing(tmp_path: Path) -> None:
    cancelled = threading.Event()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"x" * (3 << 20))
    with pytest.raises(Cancelled):
        publish_directory(Stopped(cancelled), tmp_path / "model", f"{tmp_path}/store/model", cancelled, print)
    assert list((tmp_path / "store").iterdir()) == []


def test_links_that_lead_out_of_the_directory_are_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "weights").write_text("some")
    (tmp_path / "model" / "empty").mkdir(parents=True)
    (tmp_path / "model" / "file").symlink_to(tmp_path / "elsewhere" / "weights")
    (tmp_path / "model" / "directory").symlink_to(tmp_path / "elsewhere")
    upload = DirectoryUpload(LocalStorage(), threading.Event(), print)
    assert upload.run(tmp_path / "model", f"{tmp_path}/store") == (2, 8)
    store = tmp_path / "store"
    assert (store / "file").read_text() == (store / "directory" / "weights").read_text() == "some"
    assert not (store / "file").is_symlink()
    assert (store / "empty").is_dir()
