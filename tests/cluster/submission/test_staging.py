from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.sources import LocalSource, local_source
from tony_provider.cluster.submission.preparation import Stager
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.storage.local import LocalStorage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "staging"


def stager(root: Path) -> Stager:
    return Stager(LocalStorage(), Layout(f"file://{root}"))


def source(folder: Path, name: str, content: bytes) -> LocalSource:
    path = folder / name
    path.write_bytes(content)
    return local_source(path, name)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_file_is_stored_once_per_content(root: Path, tmp_path: Path) -> None:
    one = source(tmp_path, "train.py", b"train")
    first = stager(root)
    [resource] = first.stage([one])
    assert resource.name == "train.py"
    assert resource.uri == f"file://{root}/cache/{one.sha256}/train.py"
    written = Path(resource.uri.removeprefix("file://"))
    assert (resource.size, resource.modified_ms) == (5, written.stat().st_mtime_ns // 1_000_000)
    assert written.stat().st_mode & 0o777 == 0o500  # as NodeManagers give it to tasks
    assert written.parent.stat().st_mode & 0o777 == 0o700

    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    second = stager(root)
    assert second.stage([one]) == [resource]
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    assert (first.counts.uploaded, first.counts.uploaded_bytes, first.counts.reused) == (1, 5, 0)
    assert (second.counts.uploaded, second.counts.reused, second.counts.reused_bytes) == (0, 1, 5)


def test_another_content_has_another_place(root: Path, tmp_path: Path) -> None:
    [old] = stager(root).stage([source(tmp_path, "train.py", b"old")])
    [new] = stager(root).stage([source(tmp_path, "train.py", b"new!")])
    assert old.uri != new.uri
    assert sorted(files(root).values()) == [b"new!", b"old"]


def test_many_jobs_stage_the_same_at_once(root: Path, tmp_path: Path) -> None:
    found = [source(tmp_path, f"file{number}.bin", bytes([number]) * 100_000) for number in range(5)]
    sources = [attrs.evolve(each, name=f"{copy}/{each.name}") for copy in range(4) for each in found]
    stagers = [stager(root) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda each: each.stage(sources), stagers))
    assert all(result == results[0] for result in results)
    # Names of one content share its place, and there is no temporary file.
    assert len({resource.uri for resource in results[0]}) == len(files(root)) == 5
    assert all(len(content) == 100_000 for content in files(root).values())


def test_what_several_task_types_have_under_one_name_is_stored_once(root: Path, tmp_path: Path) -> None:
    one = source(tmp_path, "env.tar.gz", b"an environment")
    uses = [attrs.evolve(one, name="python_env", task_type=each) for each in ("worker", "ps")]
    staging = stager(root)
    staged = staging.stage(uses)
    assert staged[0] == staged[1]
    assert len(files(root)) == staging.counts.uploaded == 1


def test_a_file_of_the_wrong_size_is_replaced(root: Path, tmp_path: Path) -> None:
    one = source(tmp_path, "train.py", b"train")
    [resource] = stager(root).stage([one])
    Path(resource.uri.removeprefix("file://")).write_bytes(b"tr")
    [again] = stager(root).stage([one])
    assert again.size == 5
    assert list(files(root).values()) == [b"train"]


def test_a_file_that_somebody_has_rewritten_is_replaced(root: Path, tmp_path: Path) -> None:
    """Seen: a job rewrote a cached file, and the next job of another training ran it."""
    one = source(tmp_path, "train.py", b"train")
    [resource] = stager(root).stage([one])
    cached = Path(resource.uri.removeprefix("file://"))
    cached.write_bytes(b"steal")
    again = stager(root)
    [mended] = again.stage([one])
    assert cached.read_bytes() == b"train"
    assert (mended.uri, mended.sha256, again.counts.uploaded) == (resource.uri, one.sha256, 1)


def test_a_file_that_changes_meanwhile_is_not_stored_under_its_old_hash(root: Path, tmp_path: Path) -> None:
    one = source(tmp_path, "train.py", b"train")
    one.path.write_bytes(b"changed")
    with pytest.raises(StagingFailed, match="was changed while it was being staged"):
        stager(root).stage([one])
    assert not root.exists() or not files(root)


def test_a_name_that_hdfs_would_refuse_is_changed_in_the_cache_only(root: Path, tmp_path: Path) -> None:
    [resource] = stager(root).stage([source(tmp_path, "a:b c.tar.gz", b"x")])
    assert resource.name == "a:b c.tar.gz"
    assert resource.uri.endswith("/a_b_c.tar.gz")


def test_a_file_in_the_way_is_a_clear_error(tmp_path: Path) -> None:
    blocked = tmp_path / "staging"
    blocked.write_text("not a directory")
    with pytest.raises(StagingFailed, match="could not be staged"):
        stager(blocked).stage([source(tmp_path, "train.py", b"train")])
