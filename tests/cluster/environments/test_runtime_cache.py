"""Where the worker keeps its runtime archive, which later masters execute."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tony_provider.cluster.environments.runtime_archive import worker_archive
from tony_provider.cluster.errors import StagingFailed


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_a_cache_below_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    foreign.chmod(0o777)
    os.chown(foreign, 4001, 4001)
    monkeypatch.setenv("XDG_CACHE_HOME", str(foreign))
    with pytest.raises(StagingFailed, match=r"\(XDG_CACHE_HOME\) cannot be used: .* belongs to user 4001"):
        worker_archive()
    assert list(foreign.iterdir()) == []
