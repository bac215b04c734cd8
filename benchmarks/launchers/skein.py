"""skein: its client, with the driver (Java) that it keeps, and its application master (Java)."""

from __future__ import annotations

from pathlib import Path

from benchmarks.launchers.base import ClientProcess
from benchmarks.launchers.java_client import JavaClient
from tests.hadoop.cluster import HadoopCluster


class Skein(ClientProcess):
    name = "skein"

    def __init__(self, python: Path, cluster: HadoopCluster, home: Path) -> None:
        folder = home / "skein"
        folder.mkdir()
        env = {**JavaClient(cluster, folder).environment, "SKEIN_CONFIG": str(folder)}
        super().__init__([python, "-I", Path(__file__).with_name("skein_client.py")], home / "skein.log", env)
