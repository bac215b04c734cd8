"""What a submission puts on the store: everything once, whoever else submits at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.places import Place, YarnPlace
from tony_provider.runtime.storage.base import is_temporary, walk


def job_with(*files: Path) -> dict[str, Any]:
    names = " ".join(path.name for path in files)
    return {
        "files": [str(path) for path in files],
        "tasks": {"worker": {"memory": "128MiB", "command": f"find -L {names} -type f | xargs sha256sum"}},
    }


def test_a_second_submission_uploads_nothing_that_the_first_did(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script, data = tmp_path / "train.sh", tmp_path / "data"
    script.write_text(f"echo {os.urandom(8).hex()}")
    data.mkdir()
    (data / "one.txt").write_bytes(os.urandom(1000))
    place.run(job_with(script, data)).succeeded()
    before = cached_files(place)
    caplog.clear()

    place.run(job_with(script, data)).succeeded()

    assert cached_files(place) == before
    counts = [record.getMessage() for record in caplog.records if "Staged the job's files" in record.getMessage()]
    assert len(counts) == 1
    reused = 3 if isinstance(place, YarnPlace) else 2  # YARN gets the runtime archive that way, too
    assert f"0 files uploaded (0 bytes), {reused} reused" in counts[0]


@pytest.mark.long
def test_jobs_that_bring_the_same_new_file_at_once_all_find_it_whole(place: Place, tmp_path: Path) -> None:
    data = tmp_path / "shared.bin"
    data.write_bytes(os.urandom(3 << 20))

    with ThreadPoolExecutor(6) as pool:
        jobs = list(pool.map(lambda _: place.submit(job_with(data)), range(6)))

    for job in jobs:
        job.succeeded()
    assert len({job.log("worker:0").splitlines()[-1] for job in jobs}) == 1
    copies = [path for path in cached_files(place) if path.endswith("/shared.bin")]
    assert len([path for path in copies if _holds(place, path, data)]) == 1
    assert [path for path in cached_files(place) if is_temporary(path.rpartition("/")[2])] == []


def cached_files(place: Place) -> dict[str, tuple[int, int, int]]:
    """Of every file that jobs share: its size, when it was written, and which file it is (HDFS never says twice)."""
    hook = place.hook()
    cache = f"{hook.layout.root}/cache"
    files = [entry for entry in walk(hook.storage(), cache) if not entry.is_directory]
    return {entry.path: (entry.size, entry.modified_ms, _number(place, entry.path)) for entry in files}


def _number(place: Place, uri: str) -> int:
    if not isinstance(place, YarnPlace):
        return Path(uri.removeprefix("file://")).stat().st_ino
    path = uri.removeprefix(place.cluster.fs_default)
    url = f"{place.cluster.webhdfs[0]}/webhdfs/v1{path}"
    return int(place.cluster.client("alice").get_json(url, op="GETFILESTATUS")["FileStatus"]["fileId"])


def _holds(place: Place, uri: str, data: Path) -> bool:
    with place.hook().storage().open_read(uri) as stream:
        return stream.read() == data.read_bytes()
