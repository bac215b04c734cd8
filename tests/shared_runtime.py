"""One runtime archive for all tests of a session, so that tests do not pack and copy it again."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hadoop.client import HttpError
from tony_provider.cluster.environments.inspection import pythons_of_runtime
from tony_provider.cluster.environments.runtime_archive import worker_archive
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.python_packages import version_text
from tony_provider.runtime.launch.launch_context import launch_command

if TYPE_CHECKING:
    from tests.hadoop.cluster import HadoopCluster

_USER = "alice"
_TEMPORARY = tempfile.gettempdir()  # of the session: a test may have one of its own, which is to be empty
_stored: set[Path] = set()  # clusters whose HDFS has it


def local_extra(staging_dir: Path) -> dict[str, str]:
    """The extra of a connection to a local cluster of its own, which finds the runtime in its staging directory."""
    link = staging_dir / "runtime" / "tony-runtime.zip"
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        try:
            link.hardlink_to(archive())
        except FileExistsError:  # another thread of the test was faster
            pass
        except OSError:  # another disk
            shutil.copy2(archive(), link)
    return {
        "backend": "local",
        "staging_dir": str(staging_dir),
        "runtime_archive": link.as_uri(),
        "file_roots": "/",
    }


def is_untouched(staging_dir: Path) -> bool:
    """Return whether nothing is there except what ``local_extra`` has put there."""
    return {path.name for path in staging_dir.iterdir()} == {"runtime"}


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
    """Return the runtime as containers of the local cluster get it from this archive."""
    stat = path.stat()
    modified_ms = stat.st_mtime_ns // 1_000_000
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return LocalizedResource(contract.RUNTIME_FILE, path.as_uri(), stat.st_size, modified_ms, sha256=sha256)


def launch_words(archive: Path, container: Path, program: str) -> list[str]:
    """Put a runtime archive into a container's directory; return the words that start a program of it there."""
    container.mkdir(parents=True, exist_ok=True)
    (container / contract.RUNTIME_FILE).symlink_to(archive)
    with archive.open("rb") as file:
        pythons = [version_text(each) for each in sorted(pythons_of_runtime(file).versions)]
    return launch_command(program, resource(archive), pythons)


@cache
def _folder() -> Path:
    """This process's, and gone with it."""
    folder = Path(tempfile.mkdtemp(prefix="tony-runtime-", dir=_TEMPORARY))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
