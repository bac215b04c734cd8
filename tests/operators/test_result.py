from __future__ import annotations

import json
import math

from tests.operators.statuses import ID, application, status
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
    assert (result["resumed_from"], result["checkpoint"]) == ("step 4", "step 8")
    assert result["logs_dir"] == f"{DIRECTORY}/logs"
    assert result["metrics"] == {"loss": "NaN", "accuracy": 0.5}
    assert (result["duration_s"], result["queue"], result["final_status"]) == (60.5, "ml", "SUCCEEDED")


def test_just_submitted_has_the_same_keys() -> None:
    result = JobResult.of(ID, DIRECTORY, None, None).to_dict()
    assert result["application_id"] == ID
    assert result["final_status"] is None
    assert result.keys() == JobResult.of(ID, DIRECTORY, application(), status()).to_dict().keys()
