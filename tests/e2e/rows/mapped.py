"""Mapped tasks: each instance is a training of its own."""

from __future__ import annotations

from tests.e2e.field import Field
from tests.e2e.row import row
from tests.e2e.training import Training


@row("mapped", ".expand(overrides=[…]) of 3, one of them cleared")
def mapped(field: Field) -> str:
    run = field.run("mapped")
    trainings = [field.training(run, map_index=index) for index in range(3)]
    field.trigger(run, steps=20)
    field.expect(run.end() == "success", f"the run is {run.describe()}")
    run.clear(["train", 1])
    trainings[1].expected = 2
    trainings[1].task.until("deferred", "success", tries=2)
    field.expect(run.end() == "success", f"the run is {run.describe()}")
    _all_trained(field, trainings)
    return "three applications; the one that was cleared trained anew, alone"


@row("mapped-by-key", ".expand_kwargs with checkpoint_key, one application fails and is retried")
def mapped_by_key(field: Field) -> str:
    """What one instance has saved is not the other's."""
    run = field.run("mapped_by_key")
    first = field.training(run, map_index=0, key="a", pace=0.3, applications=2)
    second = field.training(run, map_index=1, key="b", pace=0.3)
    field.trigger(run)
    first.until_committed(10)
    first.fail()
    first.task.until("deferred", tries=2)
    first.hurry()
    second.hurry()
    field.expect(run.end() == "success", f"the run is {run.describe()}")
    begun = first.begun_at()
    field.expect(len(begun) == 2 and begun[1] >= 10, f"the first began at the steps {begun}")
    field.expect(second.begun_at() == [0], f"the second began at the steps {second.begun_at()}")
    return f"the first went on from step {begun[-1]} in a second application, the other was left alone"


def _all_trained(field: Field, trainings: list[Training]) -> None:
    for training in trainings:
        field.expect(bool(training.diary.entries("ended")), f"instance {training.task.map_index} did not train")
