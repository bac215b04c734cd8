"""Sensors in a real Airflow (dag.test), on a real YARN."""

from __future__ import annotations

from pathlib import Path

from tests.operators.jobs import Marker
from tests.sensors.watched import running, watch
from tony_provider.cluster.interface import ApplicationState
from tony_provider.exceptions import TonyJobMissed
from tony_provider.hooks.tony import TonyHook
from tony_provider.sensors.tony import TonyHeartbeatSensor, TonyJobSensor


def test_a_job_is_found_watched_and_its_end_told(yarn: TonyHook, marker: Marker, tmp_path: Path) -> None:
    go = tmp_path / "go"
    steps = f"""
        echo '{{"step": 1, "total_steps": 2}}' >> $TONY_METRICS_FILE; touch {marker.path}
        while ! test -e {go}; do sleep 0.2; done
        echo '{{"step": 2, "total_steps": 2}}' >> $TONY_METRICS_FILE
    """

    class GoesOnOnceWatched(TonyHeartbeatSensor):
        def execute(self, context: object) -> object:
            go.touch()
            return super().execute(context)  # type: ignore[arg-type]

    with running(yarn, marker.path, steps, tags=["nightly"]) as application_id:
        found = watch(TonyJobSensor, states="RUNNING", application_tag="nightly").results["watch"]
        assert (found["application_id"], found["state"]) == (application_id, "RUNNING")
        watched = watch(GoesOnOnceWatched, train_task_id="train", deferrable=True).results["watch"]
        assert (watched["application_id"], watched["state"], watched["step"]) == (application_id, "SUCCEEDED", 2)
        error = watch(TonyJobSensor, states="FAILED", application_id=application_id, deferrable=True).errors["watch"]
        assert isinstance(error, TonyJobMissed)
        application = yarn.application(application_id)
        assert application is not None
        assert application.state is ApplicationState.FINISHED
