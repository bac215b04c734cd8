"""Statuses of jobs that write more into them than any master of ours."""

from __future__ import annotations

import json

import attrs
import pytest

from tests.operators.statuses import ID, application, status, worker
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.interface import MOST_WARNINGS, bounded_status
from tony_provider.cluster.training import results
from tony_provider.operators.outcome import JobResult
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.protocol.limits import MOST_PARAMETERS
from tony_provider.runtime.protocol.status import (
    Failure,
    FailureKind,
    InputStatus,
    JobStatus,
    OutputStatus,
    ProcessStatus,
    TaskProgress,
)
from tony_provider.runtime.storage import LocalStorage
from tony_provider.watching.job_watch import JobWatch, WatchLimits
from tony_provider.watching.observation import Observation

USUAL = attrs.evolve(
    status("RUNNING", step=3, metrics={"loss": 0.5}),
    warnings=["a side-car has failed"],
    failure=Failure(FailureKind.USER, "worker:0 has failed\nlast words", task="worker:0"),
    outputs=[OutputStatus("model", "hdfs:///models/a", 3, 1000)],
    model_dir="hdfs:///a",
)


def endless(number: int) -> JobStatus:
    """All that is told of a job, ``number`` times; no two of it are the same."""
    metrics = {f"m{each}": 1.0 for each in range(number)}
    return attrs.evolve(
        status("SUCCEEDED", step=3, metrics=metrics),
        message="m" * 100 * number,
        warnings=[f"{each}-" + "w" * 100 for each in range(number)],
        troubles=[f"t{each}" for each in range(number)],
        outputs=[OutputStatus(f"o{each}", f"hdfs:///{each}", 1, 1) for each in range(number)],
    )


@pytest.mark.parametrize("usual", [USUAL, status("WAITING"), status("SUCCEEDED", tasks=[worker(0, "SUCCEEDED")])])
def test_a_usual_status_stays_as_it_is(usual: JobStatus) -> None:
    assert bounded_status(usual) == usual


def test_what_a_job_wrote_into_its_status_fills_no_database(tmp_path: object) -> None:
    """Seen: 32 MiB of it became an XCom of as much, in each run."""
    written = attrs.evolve(endless(20_000), model_dir=f"file://{tmp_path}/" + "d" * 2_000_000)
    (place := LocalStorage()).write(f"file://{tmp_path}/result.json", dump_json(written))
    found = results.job_status(place, f"file://{tmp_path}")
    assert found is not None
    assert (found.warnings[-1], len(found.warnings)) == ("19800 more warnings are left out", MOST_WARNINGS + 1)
    assert len(json.dumps(JobResult.of(ID, "hdfs:///x", None, found).to_dict())) < 1 << 20


def test_the_processes_of_a_task_are_bounded_as_the_task_is() -> None:
    of_process = ProcessStatus(1, 1, progress=TaskProgress(3, metrics={f"m{each}": 1.0 for each in range(20_000)}))
    task = attrs.evolve(worker(0, "RUNNING"), further=[of_process] * 10_000)
    (found,) = bounded_status(status("RUNNING", tasks=[task])).tasks
    assert len(found.further) <= 1000
    assert all(each.progress and len(each.progress.metrics) < 1000 for each in found.further)


def test_a_place_that_is_not_the_job_s_is_named_in_few_words(tmp_path: object) -> None:
    inputs = [InputStatus("i" * 10_000, "static", 1, 1, f"hdfs:///{each}") for each in range(1000)]
    written = attrs.evolve(status("SUCCEEDED"), model_dir="hdfs:///" + "d" * 2_000_000, inputs=inputs)
    (place := LocalStorage()).write(f"file://{tmp_path}/result.json", dump_json(written))
    with pytest.raises(RecordUnreadable, match=r"model_dir: 'hdfs:///d+' does not lie below file:///") as raised:
        results.job_status(place, f"file://{tmp_path}")
    assert len(str(raised.value)) < 8000


def test_a_look_at_such_a_status_takes_a_triggerers_loop_no_longer_than_others() -> None:
    """Seen: of 20,000 warnings that change, the second look took 4 s, of 900,000 hours, and nothing else went on."""
    told: list[str] = []
    watch = JobWatch(ID, WatchLimits(), lambda line, *_: told.append(str(line)))
    for number in (20_000, 20_001):
        seen = bounded_status(attrs.evolve(endless(number), state=USUAL.state))
        watch.judge(Observation(application(), seen))
    assert len(told) < 2 * MOST_WARNINGS + 20


def test_parameters_and_labels_are_bounded() -> None:
    parameters = {f"p{number}": "x" * 1000 for number in range(20_000)}
    found = bounded_status(status("RUNNING", parameters=parameters, labels={"dag_id": "x" * (1 << 20)}))
    assert len(found.parameters) <= MOST_PARAMETERS
    assert len(found.labels["dag_id"]) <= 4 << 10
