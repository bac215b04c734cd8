"""tony_provider, from the hook's submission to the end of a worker's wait."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.hadoop import REPOSITORY
from benchmarks.launchers.base import ClientProcess
from benchmarks.report import OURS
from tests.hadoop.cluster import HadoopCluster


class TonyProvider(ClientProcess):
    """``checkout``: a checkout of another commit, whose results are called ``before``; default: this checkout."""

    def __init__(self, cluster: HadoopCluster, home: Path, checkout: Path | None = None) -> None:
        self.name = OURS if checkout is None else "before"
        airflow = home / f"airflow-{self.name}"
        env = {**os.environ, "AIRFLOW_HOME": str(airflow), "PYTHONPATH": str(checkout or REPOSITORY)}
        env |= {"AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(airflow / "logs")}
        # -P: otherwise the working directory goes before the checkout.
        command = [sys.executable, "-P", "-m", "benchmarks.launchers.ours_client", str(cluster.layout.root)]
        super().__init__(command, home / f"{self.name}.log", env)
