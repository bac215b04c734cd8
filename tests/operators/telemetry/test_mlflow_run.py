"""The run of a training on a tracking server: created, joined, and told how it went."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import attrs
import pytest

from tests.operators.statuses import ID, status
from tests.operators.telemetry.fake_mlflow import Client, MlflowException, Server
from tests.operators.telemetry.mlflow_runs import ADDRESS, TRAINING, Memory, spec, training_run
from tests.operators.telemetry.tries import START, ended
from tony_provider.cluster.records.summary import Curve, JobSummary
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally
from tony_provider.operators.mlflow_run import STATE_KEY

SECRETS = {"KEY": "hunter22"}
FAILED = TonyJobFailed("worker:1 failed\nlast words", application_id=ID)


def test_a_training_from_its_start_to_its_end(mlflow: Server) -> None:
    mine = training_run(MLFLOW_TRACKING_TOKEN="a-token")
    assert mine.begin(spec(), SECRETS) == {"MLFLOW_TRACKING_URI": ADDRESS, "MLFLOW_RUN_ID": "run0"}
    (run,) = mlflow.runs
    assert list(mlflow.experiments) == ["clicks"]
    assert run.info.run_name == "train scheduled__2026-01-05"
    assert run.data.tags.items() >= {"tony.training": TRAINING, "airflow.dag_id": "clicks"}.items()
    parameters = run.data.params
    assert (parameters["tasks.worker.instances"], parameters["env.RATE"]) == ("2", "0.1")
    assert parameters["tasks.worker.command"] == "python train.py --key ***"
    assert not {"tasks.worker.decides", "am.memory", "restart.budget"} & parameters.keys(), "defaults"

    mine.end(ended())
    assert (run.info.status, run.info.end_time) == ("FINISHED", START + 100_000)
    newest = {each.key: (each.value, each.step, each.timestamp) for each in run.data.points}
    assert newest["loss"] == (0.25, 40, START + 100_000)
    assert newest["tony.training_seconds"][0] == 60
    assert newest["tony.restarts"][0] == 2
    assert run.data.tags["tony.verdict"] == "SUCCEEDED"
    assert run.data.tags["tony.application_id"] == ID
    assert mlflow.asked_by == {(ADDRESS, "a-token")}
    assert not {"MLFLOW_TRACKING_TOKEN", "MLFLOW_HTTP_REQUEST_TIMEOUT"} & os.environ.keys()


def test_variables_that_are_secret_by_their_names_are_masked(mlflow: Server) -> None:
    training_run().begin(spec(env={"API_TOKEN": "t0ken-of-the-api", "RATE": "0.1"}), {})
    parameters = mlflow.runs[0].data.params
    assert (parameters["env.API_TOKEN"], parameters["env.RATE"]) == ("***", "0.1")


@pytest.mark.parametrize("is_remembered", [True, False])
def test_a_retry_joins_the_run_of_the_try_before(mlflow: Server, is_remembered: bool) -> None:
    store = Memory()
    first = training_run(store=store)
    first.begin(spec(), {})
    first.end(ended(FAILED))
    assert (mlflow.runs[0].info.status, mlflow.runs[0].data.tags["tony.reason"]) == ("FAILED", "worker:1 failed")
    again = training_run(store=store if is_remembered else Memory())
    # Another value of a parameter, such as after a change of the DAG, would be refused.
    assert again.begin(spec(env={"RATE": "0.2", "MORE": "1"}), {})["MLFLOW_RUN_ID"] == "run0"
    (run,) = mlflow.runs
    assert run.info.status == "RUNNING"
    assert (run.data.params["env.RATE"], run.data.params["env.MORE"]) == ("0.1", "1")
    again.end(ended())
    assert run.info.status == "FINISHED"


def test_a_program_that_ends_the_run_itself_does_not_end_it_for_us(mlflow: Server) -> None:
    mine = training_run()
    mine.begin(spec(), {})
    mlflow.runs[0].info.status = "FINISHED"  # as ``with mlflow.start_run()`` leaves it
    mine.end(ended(TonyKilledExternally("by yarn", application_id=ID)))
    (run,) = mlflow.runs
    assert run.info.status == "KILLED"


def test_after_a_success_a_new_training_is_a_new_run(mlflow: Server) -> None:
    mine = training_run()
    mine.begin(spec(), {})
    mine.end(ended())
    mine.end(ended())  # by a next try, as Airflow did not get the result
    assert len(mlflow.runs) == 1
    assert mine.begin(spec(), {})["MLFLOW_RUN_ID"] == "run1"


def test_a_run_that_somebody_has_deleted_is_not_joined(mlflow: Server) -> None:
    mine = training_run()
    mine.begin(spec(), {})
    mlflow.runs[0].info.lifecycle_stage = "deleted"
    assert mine.begin(spec(), {})["MLFLOW_RUN_ID"] == "run1"
    mine.store.set(STATE_KEY, "of-another-server")
    assert mine.begin(spec(), {})["MLFLOW_RUN_ID"] == "run1"


def test_a_run_of_another_training_is_not_joined_though_airflows_store_names_it(mlflow: Server) -> None:
    """Whoever may clear the task can write there, and had its figures in anybody's run of the same experiment."""
    theirs = attrs.evolve(training_run(), training="theirs-0")
    theirs.begin(spec(), {})
    mine = training_run()
    mine.store.set(STATE_KEY, mlflow.runs[0].info.run_id)
    assert mine.begin(spec(), {})["MLFLOW_RUN_ID"] == "run1"


def test_what_programs_may_call_a_metric_and_what_it_may_be(mlflow: Server) -> None:
    odd = status("SUCCEEDED", step=1, metrics={"<b>loss</b>@1": math.nan, "x" * 300: math.inf})
    training_run().end(ended(status=odd))
    points = {each.key: each.value for each in mlflow.runs[0].data.points}
    assert math.isnan(points["_b_loss_/b__1"])
    assert points["x" * 250] == math.inf


def test_curves_stand_for_the_newest_value(mlflow: Server) -> None:
    curve = Curve(metric="loss", steps=[10, 40], seconds=[1.0, 2.5], values=["NaN", 0.25])
    summary = JobSummary(application_id=ID, application_dir="", dag_id="", run_id="", task_id="", curves=[curve])
    training_run().end(ended(summary=summary))
    points = [each for each in mlflow.runs[0].data.points if each.key == "loss"]
    assert [(each.step, each.timestamp) for each in points] == [(10, START + 1000), (40, START + 2500)]


def test_of_an_application_that_was_never_seen(mlflow: Server) -> None:
    training_run().end(ended(FAILED, application=None, status=None))
    (run,) = mlflow.runs
    assert (run.info.status, run.info.end_time, run.data.points) == ("FAILED", None, [])


def test_a_run_that_is_made_when_the_try_has_ended_began_when_its_job_was_submitted(mlflow: Server) -> None:
    training_run().end(ended())
    (run,) = mlflow.runs
    assert (run.info.start_time, run.info.end_time) == (START, START + 100_000)


def test_many_points_are_sent_in_parts(mlflow: Server) -> None:
    many = Curve(metric="m", steps=list(range(3000)), seconds=[0.0] * 3000, values=[1.0] * 3000)
    summary = JobSummary(application_id=ID, application_dir="", dag_id="", run_id="", task_id="", curves=[many])
    training_run().end(ended(summary=summary))
    assert sum(each.key == "m" for each in mlflow.runs[0].data.points) == 3000


def test_two_tasks_at_once_make_one_experiment(mlflow: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first = training_run()
    first.begin(spec(), {})
    looks = iter([True])  # the first of the second task, before the first task has made it
    real = Client.get_experiment_by_name
    monkeypatch.setattr(
        Client, "get_experiment_by_name", lambda self, name: None if next(looks, False) else real(self, name)
    )
    attrs.evolve(first, training="another", store=Memory()).begin(spec(), {})
    assert len(mlflow.experiments) == 1


def test_a_server_that_is_away_is_an_error_here(mlflow: Server) -> None:
    mlflow.is_away = True
    with pytest.raises(MlflowException):
        training_run().begin(spec(), {})


class Without:
    """A Python that has no module of a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)


def test_without_the_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    monkeypatch.setattr(sys, "meta_path", [Without("mlflow"), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'tony-provider\[mlflow\]'"):
        training_run().begin(spec(), {})


def test_a_client_that_lacks_something_else_says_what(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "__init__.py").write_text("import module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    forget(monkeypatch)
    with pytest.raises(ModuleNotFoundError, match="No module named 'module_that_is_not_there'"):
        training_run().begin(spec(), {})
