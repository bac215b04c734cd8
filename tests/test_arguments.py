"""Arguments of operators and sensors that are refused where the DAG is read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tony_provider.arguments import positive_seconds
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.sensors.tony import TonyJobSensor


@pytest.mark.parametrize("value", [0, -1, True, "10", float("inf"), timedelta(0), timedelta(seconds=-1)])
def test_seconds_that_are_none(value: Any) -> None:
    with pytest.raises(ValueError, match=r"poke_interval is .* should be a timedelta or a number of seconds above 0"):
        positive_seconds("poke_interval", value)


@pytest.mark.parametrize("value", [2, 2.0, timedelta(seconds=2)])
def test_seconds(value: Any) -> None:
    assert positive_seconds("poke_interval", value) == 2.0


@pytest.mark.parametrize("name", ["wait_for_completion", "deferrable", "durable"])
def test_a_text_is_no_answer_to_yes_or_no(name: str) -> None:
    arguments: dict[str, Any] = {name: "no"}
    with pytest.raises(ValueError, match=f"{name} is 'no' and should be True or False"):
        TonyTrainOperator(task_id="train", job={}, **arguments)


def test_nor_is_it_to_a_sensor() -> None:
    deferrable: Any = "False"
    with pytest.raises(ValueError, match="deferrable is 'False' and should be True or False"):
        TonyJobSensor(task_id="watch", train_task_id="train", deferrable=deferrable)
