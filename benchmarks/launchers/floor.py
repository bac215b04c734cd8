"""The floor: the least that a launch by Python and REST can be. Its files are on HDFS before the first job."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.launchers.base import ClientProcess
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import USER
from tony_provider.cluster.environments.runtime_archive import worker_archive

_HDFS = "/tmp/bench-floor"


class Floor(ClientProcess):
    name = "floor"

    def __init__(self, cluster: HadoopCluster, home: Path) -> None:
        # The runtime is there for the library and what that needs. Nodes keep it unpacked.
        here = Path(__file__).parent
        master = _stored(cluster, here / "floor_master.py", "floor_master.py", "FILE")
        resources = [_stored(cluster, _libraries(home), "tony", "ARCHIVE"), master]
        words = [cluster.rm_webapp[0], USER, cluster.state.scheduler[0], json.dumps(resources)]
        command: list[str | Path] = [sys.executable, "-I", here / "floor_client.py", *words]
        super().__init__(command, home / "floor.log", dict(os.environ))


def _libraries(home: Path) -> Path:
    """Make an archive with the runtime's modules as plain files."""
    made = home / "floor-libraries.zip"
    own = "cp{}{}".format(*sys.version_info[:2])
    with (
        zipfile.ZipFile(worker_archive()) as archive,
        zipfile.ZipFile(archive.open(f"{own}/runtime.zip")) as inner,
        zipfile.ZipFile(made, "w") as packed,
    ):
        for name in inner.namelist():
            packed.writestr(name, inner.read(name))
        for name in archive.namelist():
            if name.startswith(f"{own}/lib/"):
                packed.writestr(name.removeprefix(f"{own}/lib/"), archive.read(name))
    return made


def _stored(cluster: HadoopCluster, file: Path, name: str, kind: str) -> dict[str, Any]:
    """As YARN's REST interface has a local resource."""
    path = f"{_HDFS}/{file.name}"
    client, url = cluster.client(USER), f"{cluster.webhdfs[0]}/webhdfs/v1{path}"
    client.request("PUT", url, file.read_bytes(), query={"op": "CREATE", "overwrite": "true"})
    status = client.get_json(url, op="GETFILESTATUS")["FileStatus"]
    value = {
        "resource": f"{cluster.fs_default}{path}",
        "type": kind,
        "visibility": "PRIVATE",
        "size": status["length"],
        "timestamp": status["modificationTime"],
    }
    return {"key": name, "value": value}
