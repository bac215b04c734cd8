"""A try of a task whose worker dies: a process of its own that kills itself, with SIGKILL, at a given point."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from tony_provider.cluster.local.local_cluster import LocalCluster
from tony_provider.cluster.yarn.yarn_cluster import YarnCluster
from tony_provider.hooks.job import TonyJob
from tony_provider.operators import tony, training_try

BEFORE_SUBMISSION = "before-submission"  # it owns its chain already, and the cluster has not heard of it
AFTER_SUBMISSION = "after-submission"
BEFORE_DEFERRAL = "before-deferral"  # its last act before Airflow calls it deferred
AFTER_SUCCESS = "after-success"  # the application has ended well, and nobody knows
AFTER_DELIVERY = "after-delivery"  # execute() has returned, and Airflow does not know
SECONDS = 120.0

# Workers are forked from a process that has imported Airflow, which takes longer than all that they do.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.operators.trainings", "tests.operators.warm"])


def run_and_die(where: str, spec: Mapping[str, Any] | str, **arguments: Any) -> None:
    """Returns when it is dead; fails when it was not."""
    with tempfile.NamedTemporaryFile() as output:
        how = (where, {"job": spec, **arguments}, dict(os.environ), output.name)
        worker = _FORKS.Process(target=_work, args=how)
        worker.start()
        worker.join(SECONDS)
        code = worker.exitcode
        if code is None:
            worker.kill()
            worker.join()
        said = Path(output.name).read_text(errors="replace")
    assert code == -signal.SIGKILL, f"it lived ({code}):\n{said[-16000:]}"


def _work(where: str, arguments: dict[str, Any], environment: dict[str, str], output: str) -> None:
    with Path(output).open("wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    # Only here: these import this module.
    from tests.airflow_dags import run
    from tests.operators.jobs import dag_of
    from tests.operators.trainings import DATES

    _arrange(where, arguments)
    with dag_of(arguments.pop("job"), **arguments) as dag:
        run(dag, **DATES)


def _arrange(where: str, arguments: dict[str, Any]) -> None:
    """That this process dies there."""
    if where == BEFORE_SUBMISSION:
        for cluster in (LocalCluster, YarnCluster):
            cluster.submit = _die  # type: ignore[method-assign]
    elif where == AFTER_SUBMISSION:
        training_try.TrainingTry._wait = _die  # type: ignore[method-assign]
    elif where == BEFORE_DEFERRAL:
        tony.TonyTrainOperator.defer = _die  # type: ignore[method-assign]
    elif where == AFTER_SUCCESS:
        TonyJob.clean_up = _die  # type: ignore[method-assign]
    elif where == AFTER_DELIVERY:
        arguments["post_execute"] = _die
    else:
        raise ValueError(where)


def _die(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process does not outlive SIGKILL")
