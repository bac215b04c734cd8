"""An output on each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import attrs
import pytest

from tests.runtime.storage.conftest import Place
from tony_provider.runtime.jobspec.model import OutputCommit, OutputLayout, OutputSpec
from tony_provider.runtime.outputs.publication import (
    OutputMark,
    OutputPart,
    OutputPlace,
    Publication,
    PublishError,
    clear_away,
    target_problem,
    write_mark,
)
from tony_provider.runtime.storage import (
    Storage,
    StoragePermissionDenied,
    WebHdfsConfig,
    open_storage,
    read_bytes,
    uris,
    walk,
)

KINDS = {
    "at once": OutputSpec(""),
    "flat": OutputSpec("", layout=OutputLayout.FLAT),
    "part by part": OutputSpec("", commit=OutputCommit.TASK),
}


def files(place: Place) -> dict[str, str]:
    """Below the place's root, but for marks."""
    found = (each for each in walk(place.storage, place.root) if not each.is_directory)
    begins = len(place.uri(""))
    return {
        each.path[begins:]: read_bytes(place.storage, each.path).decode()
        for each in found
        if not each.name.startswith("_")
    }


def publish(place: Place, spec: OutputSpec, application_id: str, *names: str) -> Publication:
    """Two tasks have left files of these names, the first committed a shard's file before it started again."""
    here = OutputPlace(spec.path, application_id)
    publication = Publication(place.storage, "out", spec, here, "training")
    publication.open()
    parts = []
    for index in range(2):
        part = f"worker-{index}.1.2"
        for name in names:
            place.storage.write(f"{here.part(part)}/{index}/{name}", name.encode())
        parts.append(OutputPart("out", part, len(names), sum(map(len, names))))
    for name in ("shard", "lost"):
        place.storage.write(f"{here.part('worker-0.1.1')}/{name}", name.encode())
    if spec.commit is OutputCommit.TASK:
        publication.publish_part(parts[1])
    done = publication.publish(parts, lambda: [("worker-0.1.1", "shard"), ("worker-1.1.2", f"1/{names[0]}")])
    assert (done.files, done.uri) == (2 * len(names) + 1, spec.path)
    assert done.bytes == 2 * sum(map(len, names)) + len("shard")
    return publication


@pytest.mark.parametrize("kind", KINDS)
def test_what_counts_gets_to_its_path_and_nothing_is_beside_it(place: Place, kind: str) -> None:
    by_task = kind != "flat"
    spec = OutputSpec(place.uri("deep/out"), [], KINDS[kind].commit, KINDS[kind].layout)
    for number, names in enumerate((("a",), ("b", "c/d")), start=1):
        publication = publish(place, spec, f"application_1_000{number}", *names)
        expected = {
            f"deep/out/{f'worker-{index}/' if by_task else ''}{index}/{n}": n for index in (0, 1) for n in names
        }
        assert files(place) == {**expected, f"deep/out/{'worker-0.1.1/' if by_task else ''}shard": "shard"}
        assert place.names("deep") == ["out"]
        assert "_SUCCESS" in place.names("deep/out")
        clear_away(place.storage, publication.place)
        assert len(files(place)) == len(expected) + 1
    assert target_problem(place.storage, "out", spec, "training") == ""
    assert "of another training wrote it" in target_problem(place.storage, "out", spec, "another")


@pytest.fixture
def bobs(hdfs: Place, webhdfs_config: WebHdfsConfig) -> Iterator[Place]:
    """The store for another user. In its /tmp all may write: what is somebody's nobody else may rename or remove."""
    with open_storage(hdfs.root, webhdfs=attrs.evolve(webhdfs_config, user="bob")) as storage:
        yield Place("bob's", storage, hdfs.root)
        clear(storage, hdfs.root)
    clear(hdfs.storage, hdfs.root)


def clear(storage: Storage, root: str) -> None:
    """Remove what lies beside the root and is called after it, as far as it is this user's."""
    for each in storage.list(uris.parent(root)):
        if uris.name(root) + "-out" in each.name:
            with suppress(StoragePermissionDenied):
                storage.remove(each.path, recursive=True)


def test_what_another_user_calls_this_applications_output_is_not_published_for_it(hdfs: Place, bobs: Place) -> None:
    """Her own was removed, as there seemed to be one already."""
    spec = OutputSpec(f"{hdfs.root}-out")
    here = OutputPlace(spec.path, "application_1_0001")
    publication = Publication(hdfs.storage, "out", spec, here, "training")
    publication = attrs.evolve(publication, user=publication.open())
    hdfs.storage.write(f"{here.part('worker-0.1.1')}/data", b"alice's")
    bobs.storage.make_directories(here.target, permission=0o777)
    bobs.storage.write(f"{here.target}/data", b"bob's")
    write_mark(bobs.storage, here.target, "_SUCCESS", OutputMark("application_1_0001", "bobs"))
    with pytest.raises(PublishError, match="application_1_0001 of another training wrote it"):
        publication.publish([OutputPart("out", "worker-0.1.1", 1, 7)])
    assert read_bytes(hdfs.storage, f"{here.assembled}/worker-0/data") == b"alice's"


def test_a_staging_directory_of_another_user_is_not_written_in(hdfs: Place, bobs: Place) -> None:
    """Who knows the next application's number can make it, and have the parts in it: what she published was theirs."""
    spec = OutputSpec(f"{hdfs.root}-out")
    here = OutputPlace(spec.path, "application_1_0001")
    bobs.storage.make_directories(here.staging, permission=0o777)
    with pytest.raises(
        PublishError, match=r"^outputs\.out\.path: .*\.application_1_0001 belongs to bob, .* remove it, or"
    ):
        Publication(hdfs.storage, "out", spec, here, "training").open()
    assert bobs.storage.list(here.staging) == []
    with pytest.raises(StoragePermissionDenied):
        hdfs.storage.remove(here.staging, recursive=True)


def test_what_another_user_puts_beside_an_output_does_not_hold_its_job(hdfs: Place, bobs: Place) -> None:
    """It had waited for `timeouts.upload`, and failed then, though all was published."""
    spec = OutputSpec(f"{hdfs.root}-out")
    here = OutputPlace(spec.path, "application_1_0001")
    publication = Publication(hdfs.storage, "out", spec, here, "training")
    publication.open()
    hdfs.storage.write(f"{here.part('worker-0.1.1')}/data", b"alice's")
    bobs.storage.make_directories(here.former)
    assert publication.publish([OutputPart("out", "worker-0.1.1", 1, 7)]).files == 1
    assert read_bytes(hdfs.storage, f"{here.target}/worker-0/data") == b"alice's"
