from __future__ import annotations

import json
import math
import re

import pytest

from tests.operators.jobs import job
from tests.operators.statuses import ID, application, status
from tests.operators.trainings import Training
from tony_provider.operators.outcome import JobResult
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.status import FinalStatus

DIRECTORY = f"hdfs://nn:8020/user/alice/.tony/jobs/digits/applications/{ID}"


def test_everything_known() -> None:
    result = JobResult.of(
        ID,
        DIRECTORY,
        application(
            "FINISHED",
            final_status=FinalStatus.SUCCEEDED,
            queue="ml",
            tracking_url="http://rm/proxy/x",
            started_ms=1_000,
            finished_ms=61_500,
        ),
        status(
            "SUCCEEDED",
            started_ms=2_000,
            finished_ms=60_000,
            model_dir=f"{DIRECTORY}/model",
            metrics={"loss": math.nan, "accuracy": 0.5},
            step=10,
            resumed=ResumePoint(4, "hdfs://nn:8020/chain-0001/checkpoints/4", 2),
            checkpoint=ResumePoint(8, "hdfs://nn:8020/chain-0001/checkpoints/8", 3),
            restarts=1,
        ),
        "hdfs://nn:8020/chain-0001",
    ).to_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert (result["checkpoint_chain"], result["resumed_step"], result["checkpoint_step"]) == (
        "hdfs://nn:8020/chain-0001",
        4,
        8,
    )
    assert (result["checkpoint_dir"], result["restarts"]) == ("hdfs://nn:8020/chain-0001/checkpoints/8", 1)
    assert (result["resumed_from"], result["checkpoint"]) == ("snapshot 2 (step 4)", "snapshot 3 (step 8)")
    assert result["logs_dir"] == f"{DIRECTORY}/logs"
    assert result["metrics"] == {"loss": "NaN", "accuracy": 0.5}
    assert (result["duration_s"], result["queue"], result["final_status"]) == (60.5, "ml", "SUCCEEDED")


def test_just_submitted_has_the_same_keys() -> None:
    result = JobResult.of(ID, DIRECTORY, None, None).to_dict()
    assert result["application_id"] == ID
    assert result["final_status"] is None
    assert result.keys() == JobResult.of(ID, DIRECTORY, application(), status()).to_dict().keys()


def last_lines(log: str) -> list[str]:
    """Of the operator, from the job's end on; without level and place, and without what the job has printed.

    Of a short job that is read at the end, on a busy machine.
    """
    lines = re.findall(r"(?m)^\w+ +tony_provider\.operators:\S+ (.*)$", log)
    told = lines[lines.index("Job is SUCCEEDED") :]
    return [line for line in told if not line.startswith("worker:0 | ")]


def test_the_last_lines_say_nothing_twice_and_end_with_where_everything_is(training: Training) -> None:
    command = """
        echo '{"step": 3, "total_steps": 3, "loss": 0.25}' >> $TONY_METRICS_FILE
        echo '{"best": 7}' > $TONY_RESULT_FILE
        echo weights > $TONY_MODEL_DIR/model.bin
        echo weights > $TONY_CHECKPOINT_DIR/weights
        echo '{"step": 3, "entry": "weights", "files": [{"path": "weights", "size": 8}]}' \\
            > $TONY_CHECKPOINT_DIR/step-3.tony.json
    """
    done = training.again(job(command))
    result = done.results["train"]
    told = last_lines(training.log)
    assert told[0] == "Job is SUCCEEDED"
    assert told[1].split() == ["task", "state", "node", "step", "steps/s", "memory"]
    assert told[3] == "step 3 of 3 (100 %), loss=0.25, checkpoint 3"
    assert re.fullmatch(rf"{result['application_id']} has succeeded after \d+ s", told[4])
    assert told[5:] == [
        "Returned: {'best': 7}",
        f"Model: {result['model_dir']}",
        f"Checkpoints: {result['checkpoint_chain']}",
        f"Logs: {result['logs_dir']}",
    ]


def test_warnings_are_counted_at_the_end(training: Training) -> None:
    side_car = {"memory": "256MiB", "role": "sidecar", "command": "exit 5"}
    spec = job("sleep 2")
    spec["tasks"]["helper"] = side_car
    done = training.again(spec)
    [warning] = done.results["train"]["warnings"]
    assert training.log.count(warning) == 1
    assert training.said(r"WARNING .* has succeeded after \d+ s, with 1 warning \(see above\)")
    assert not training.said("Checkpoints: ")  # it made none


@pytest.mark.parametrize(
    ("command", "is_told"),
    [
        ("echo weights > model.keras", True),
        ("echo weights > $TONY_MODEL_DIR/model.keras", False),
        ("echo null > $TONY_RESULT_FILE", True),
        ("echo 0 > $TONY_RESULT_FILE", False),
    ],
)
def test_a_program_whose_model_has_gone_with_its_container_is_told_so(
    training: Training, command: str, is_told: bool
) -> None:
    training.again(job(command))
    assert training.said("Nothing was left in TONY_MODEL_DIR or TONY_CHECKPOINT_DIR: ") is is_told


def test_what_was_not_waited_for_has_no_places_yet(training: Training) -> None:
    done = training.again(job("true"), wait_for_completion=False)
    assert training.said(f"Not waiting for {done.results['train']['application_id']}")
    assert not training.said("Model: ")
