"""What a real job has kept of itself: its specification, series, times and use."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.jobs.places import LocalPlace
from tests.jobs.processes import processes_of
from tests.waiting import until
from tony_provider.cluster.records.summary import JobSummary, summarize

TRAIN = """
for step in 1 2 3 4 5 6 7 8; do
  echo "{\\"step\\": $step, \\"total_steps\\": 8, \\"loss\\": 0.$step}" >> $TONY_METRICS_FILE
  echo 0123456789 >> written
  sleep 0.5
done
sync written
"""
PASSWORD = "correct horse battery"


def test_a_job_is_known_after_its_end(local: LocalPlace) -> None:
    given = {"tasks": {"worker": {"command": TRAIN}}, "env": {"API_TOKEN": PASSWORD, "MODE": "fast"}}
    job = local.run(
        {
            "tasks": {
                "worker": {"command": TRAIN, "instances": 2, "memory": "256MiB"},
                "logger": {"command": "sleep 600", "role": "sidecar", "memory": "128MiB"},
            },
            "env": {"API_TOKEN": PASSWORD, "MODE": "fast", "LOGIN": "me:open-sesame"},
            "secrets": ["KEY"],
        },
        secrets={"KEY": "open-sesame"},
        given=given,
        overrides={"tasks": {"worker": {"instances": 2}}},
        labels={"dag_id": "daily"},
    )
    status = job.succeeded()
    history = job.handle.history()

    assert history.missing == []
    assert history.status == status
    assert history.labels == {"dag_id": "daily"}
    assert [event["event"] for event in history.events][:2] == ["application", "requested"]

    specification = history.specification
    assert specification is not None
    assert specification.job["env"] == {"API_TOKEN": "***", "MODE": "fast", "LOGIN": "me:***"}
    assert specification.job["tasks"]["worker"]["vcores"] == 1  # a default
    assert specification.job["secrets"] == ["KEY"]
    assert specification.overrides == {"tasks": {"worker": {"instances": 2}}}
    assert specification.given == {**given, "env": {"API_TOKEN": "***", "MODE": "fast"}}
    assert PASSWORD not in json.dumps(specification.job)

    last = {sample.task: sample for sample in history.samples}
    assert {"worker:0", "worker:1"} <= last.keys()
    assert (last["worker:0"].step, last["worker:0"].metrics) == (8, {"loss": 0.8})
    of_worker = [sample for sample in history.samples if sample.task == "worker:0"]
    assert sum(sample.values.get("written_bytes", 0) for sample in of_worker) > 0
    assert max(sample.values.get("rss_bytes", 0) for sample in of_worker) > 0
    assert all(sample.seconds > 0 for sample in of_worker)

    assert status.times is not None
    assert status.times.queue is not None
    assert status.times.training > 0
    assert status.times.restarts == 0
    worker, logger = status.use
    assert (worker.type, worker.tasks, worker.memory_bytes) == ("worker", 2, 256 << 20)
    assert worker.container_seconds >= worker.used_seconds > 2
    assert worker.most_rss_task in ("worker:0", "worker:1")
    assert logger.used_seconds > 0


def test_a_running_job_is_known_as_far_as_it_goes(local: LocalPlace) -> None:
    job = local.submit({"tasks": {"worker": {"command": "sleep 600", "memory": "128MiB"}}})
    until(lambda: job.handle.history().status, "a status")
    history = job.handle.history()
    assert history.specification is not None
    assert history.specification.given is None
    assert history.missing == ["series: there is no segment (yet)"]


@pytest.mark.long
def test_what_was_kept_is_there_when_the_master_is_killed(local: LocalPlace) -> None:
    job = local.submit({"tasks": {"worker": {"command": TRAIN + "sleep 600", "memory": "128MiB"}}})
    until(lambda: job.handle.history().samples, "a segment", seconds=90)
    (master,) = [process for process in processes_of(job.id) if process.words.split()[-1:] == ["am"]]
    os.kill(master.pid, signal.SIGKILL)
    job.end()

    history = job.handle.history()
    assert history.specification is not None
    assert history.status is not None
    assert history.samples[0].task == "worker:0"


PRODUCE = """
import json, os, sys, time
import tony_sdk
secret = os.environ["KEY"]
tony_sdk.log_params({"optimizer": {"lr": float(sys.argv[2])}, "url": f"https://me:{secret}@hub", "bad": object()})
if os.environ["TONY_RANK"] == "0":
    with open(os.path.join(os.environ["TONY_MODEL_DIR"], "model.txt"), "w") as file:
        file.write("weights")
    with open(os.environ["TONY_RESULT_FILE"], "w") as file:
        json.dump({"accuracy": 0.75}, file)
    tony_sdk.log_params(seed=7)
    tony_sdk.report(1, 1, loss=0.5)
"""


def test_the_results_and_parameters_of_a_job(local: LocalPlace, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PRODUCE)
    command = "python3 train.py --lr 0.25 --batch-size=32"
    worker = {"command": command, "instances": 2, "memory": "256MiB"}
    spec = {"tasks": {"worker": worker}, "secrets": ["KEY"], "files": [str(program)]}
    job = local.run(spec, secrets={"KEY": "open-sesame"})
    status = job.succeeded()
    assert status.parameters == {"optimizer.lr": "0.25", "url": "https://me:***@hub", "seed": "7"}
    assert "tony_sdk.log_params leaves out: bad" in job.log("worker:0")
    begun = JobSummary(application_id=job.id, application_dir=job.directory, dag_id="d", run_id="r", task_id="t")
    found = summarize(begun, job.handle.history())
    assert found.parameters == {**status.parameters, "lr": "0.25", "batch_size": "32"}
    assert found.parameter_sources["lr"] == "command"
    assert (found.model_dir, found.returned) == (f"{job.directory}/model", '{"accuracy": 0.75}')
