"""A try of a task whose worker dies: a process of its own that kills itself, with SIGKILL, at a given point.

python -m tests.operators.dying <where> <arguments of TonyTrainOperator, as JSON>
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from tony_provider.cluster.local.cluster import LocalCluster
from tony_provider.cluster.yarn.cluster import YarnCluster
from tony_provider.operators.tony import TonyTrainOperator

BEFORE_SUBMISSION = "before-submission"  # it owns its lineage already, and the cluster has not heard of it
AFTER_SUBMISSION = "after-submission"
AFTER_SUCCESS = "after-success"  # the application has ended well, and nobody knows
AFTER_DELIVERY = "after-delivery"  # execute() has returned, and Airflow does not know
SECONDS = 120.0


def run_and_die(where: str, spec: Mapping[str, Any] | str, **arguments: Any) -> None:
    """Returns when it is dead; fails when it was not."""
    command = [sys.executable, "-m", "tests.operators.dying", where, json.dumps({"job": spec, **arguments})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == -signal.SIGKILL, f"it lived:\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"


def _die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process does not outlive SIGKILL")


class _DiesAttached(TonyTrainOperator):
    def _wait(self, *_: Any, **__: Any) -> NoReturn:
        _die()


class _DiesKnowing(TonyTrainOperator):
    def _conclude(self, *_: Any, **__: Any) -> NoReturn:
        _die()


def main() -> None:
    # Only here: this process has Airflow's home in its environment already.
    from tests.airflow_dags import run
    from tests.operators.jobs import dag_of
    from tests.operators.trainings import DATES

    where, arguments = sys.argv[1], json.loads(sys.argv[2])
    operator = TonyTrainOperator
    if where == BEFORE_SUBMISSION:
        for cluster in (LocalCluster, YarnCluster):
            cluster.submit = _die  # type: ignore[method-assign]
    elif where == AFTER_SUBMISSION:
        operator = _DiesAttached
    elif where == AFTER_SUCCESS:
        operator = _DiesKnowing
    elif where == AFTER_DELIVERY:
        arguments["post_execute"] = _die
    else:
        raise ValueError(where)
    with dag_of(arguments.pop("job"), operator, **arguments) as dag:
        run(dag, **DATES)


if __name__ == "__main__":
    main()
