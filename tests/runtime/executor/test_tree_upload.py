"""Directories of models and outputs on a real HDFS."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.runtime.storage.conftest import Place
from tests.runtime.storage.conftest import hdfs as hdfs
from tests.runtime.storage.conftest import webhdfs_config as webhdfs_config
from tony_provider.runtime.executor.result_upload import commit_directory
from tony_provider.runtime.storage import read_text, uris


def test_colons_in_names_are_escaped_for_hdfs(hdfs: Place, tmp_path: Path) -> None:
    names = ["epoch:3/loss:0.1", "twice:x", "twice%3Ax", "plain"]
    for name in names:
        (tmp_path / "new" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "new" / name).write_text(name)
    warnings: list[str] = []
    target = uris.join(hdfs.root, "model")
    commit_directory(hdfs.storage, tmp_path / "new", target, threading.Event(), warnings.append)
    kept = {"epoch%3A3/loss%3A0.1": "epoch:3/loss:0.1", "twice%3Ax": "twice%3Ax", "plain": "plain"}
    assert {name: read_text(hdfs.storage, uris.join(target, name)) for name in kept} == kept
    assert len(warnings) == 2
    assert any("twice:x is not stored, because twice%3Ax" in each for each in warnings)
