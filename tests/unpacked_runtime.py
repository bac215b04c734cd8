"""One runtime for all tests of a session: unpacked once, and compiled by the first container that runs it.

Where each test has a cluster or a staging directory of its own, its nodes would otherwise unpack, and Python compile,
hundreds of files each time: as much work as all the rest of a small job.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hadoop.client import HttpError
from tony_provider.cluster.runtime_archive import worker_archive
from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource, ResourceKind
from tony_provider.runtime.local.archives import ArchiveCache, name_of

if TYPE_CHECKING:
    from tests.hadoop.cluster import HadoopCluster

_USER = "alice"
_TEMPORARY = tempfile.gettempdir()  # of the session: a test may have one of its own, which is to be empty
_stored: set[Path] = set()  # clusters whose HDFS has it


def local_extra(staging_dir: Path) -> dict[str, str]:
    """The extra of a connection to a local cluster of its own, which finds the runtime in its staging directory."""
    link = staging_dir / "runtime" / "tony-runtime.zip"
    if not link.exists():
        link.parent.mkdir(parents=True)
        try:
            link.hardlink_to(archive())
        except OSError:  # another disk
            shutil.copy2(archive(), link)
    have_unpacked(staging_dir / "cluster" / "applications", resource(link))
    return {
        "backend": "local",
        "staging_dir": str(staging_dir),
        "runtime_archive": link.as_uri(),
        "file_roots": "/",
    }


def is_untouched(staging_dir: Path) -> bool:
    """Whether nothing is there but what ``local_extra`` has put there."""
    cluster = staging_dir / "cluster"
    made = {staging_dir: {"runtime", "cluster"}, cluster: {"applications"}, cluster / "applications": {"unpacked"}}
    return all({path.name for path in folder.iterdir()} == names for folder, names in made.items())


def have_unpacked(applications: Path, runtime: LocalizedResource) -> None:
    """Have a local cluster, by the folder of its applications, find the runtime unpacked already."""
    place = applications / "unpacked" / name_of(runtime)
    if not place.is_symlink():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.symlink_to(_unpacked(), target_is_directory=True)


def hdfs_extra(cluster: HadoopCluster) -> dict[str, str]:
    """For the extra of a connection to a cluster without Kerberos: its nodes have the runtime from one place."""
    path = f"/tmp/runtime/{worker_archive().name}"  # by its content: a cluster may outlive the session
    if cluster.root not in _stored:
        _store(cluster, path)
        _stored.add(cluster.root)
    return {"runtime_archive": f"{cluster.fs_default}{path}", "file_roots": "/"}


def _store(cluster: HadoopCluster, path: str) -> None:
    client, url = cluster.client(_USER), f"{cluster.webhdfs[0]}/webhdfs/v1{path}"
    try:
        client.get_json(url, op="GETFILESTATUS")
    except HttpError:  # not there yet
        client.request("PUT", url, archive().read_bytes(), query={"op": "CREATE"})


@cache
def archive() -> Path:
    """A copy: the original may go while the tests run, when others pack theirs."""
    return Path(shutil.copy2(worker_archive(), _folder() / "tony-runtime.zip"))


def resource(path: Path) -> LocalizedResource:
    """The runtime, as containers of the local cluster get it from this archive."""
    stat = path.stat()
    modified_ms = stat.st_mtime_ns // 1_000_000
    return LocalizedResource(contract.RUNTIME_DIR, path.as_uri(), stat.st_size, modified_ms, ResourceKind.ARCHIVE)


@cache
def _unpacked() -> Path:
    shared = _folder() / "unpacked"
    return ArchiveCache(shared, shared, lambda _: False).unpacked(resource(archive()))


@cache
def _folder() -> Path:
    """This process's, and gone with it."""
    folder = Path(tempfile.mkdtemp(prefix="tony-runtime-", dir=_TEMPORARY))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
