"""Which training a sensor's arguments name; with a mocked context, as a DAG that is run has no tasks of all kinds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tony_provider.hooks.tony import TonyHook
from tony_provider.sensors.sensor_run import SensorArguments
from tony_provider.watching.job_poller import JobTarget
from tony_provider.watching.observation import TrainTask


def aim(**given: Any) -> SensorArguments:
    nothing = dict.fromkeys(("application_id", "application_tag", "train_task_id", "map_index", "checkpoint_key"))
    return SensorArguments(**(nothing | given))


@pytest.mark.parametrize(
    ("own", "given", "index", "key"),
    [
        (-1, {}, -1, None),
        (None, {}, -1, None),
        (3, {}, 3, None),  # in a mapped task group
        (3, {"map_index": "1"}, 1, None),
        (-1, {"map_index": 0}, 0, None),
        (-1, {"checkpoint_key": "de"}, None, "de"),
    ],
)
def test_a_training_task_and_its_instances(
    local: TonyHook, own: int | None, given: dict[str, Any], index: int | None, key: str | None
) -> None:
    ti = SimpleNamespace(dag_id="dag", run_id="today", task_id="group.watch", map_index=own, try_number=1)
    context = cast(Any, {"ti": ti})
    target, task = aim(train_task_id="group.train", **given).resolve(local, context, ["group.train", "group.watch"])
    assert task == TrainTask("dag", "today", "group.train", index)
    mapped = -1 if index is None else index
    training = {"dag_id": "dag", "run_id": "today", "task_id": "group.train"}
    identity = local.identity(**training, map_index=mapped, checkpoint_key=key)
    assert target == JobTarget(identity=identity)
