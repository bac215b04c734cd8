"""A retry is a resume; and what comes after a training is done again without it."""

from __future__ import annotations

from tests.e2e.field import Field
from tests.e2e.links import wrong_links
from tests.e2e.row import row


@row("application-failed", "the application fails, Airflow retries")
def application_failed(field: Field) -> str:
    training = field.one("defers", applications=2)
    training.task.until("deferred")
    training.until_committed(10)
    training.fail()
    training.until_gone(training.newest["id"])
    training.task.until("deferred", tries=2)
    field.problems += wrong_links(training)  # those of the second try, while it trains
    training.hurry()
    field.expect(training.task.run.end() == "success", f"the run is {training.task.run.describe()}")
    begun = training.begun_at()
    field.expect(len(begun) == 2 and begun[1] >= 10, f"its user processes began at the steps {begun}")
    resumed = training.task.xcom("resumed_step")
    field.expect(resumed == begun[-1], f"resumed_step is {resumed}")
    return f"second application went on from step {begun[-1]} and succeeded"


@row("evaluation-cleared", "only the task after the training cleared")
def evaluation_cleared(field: Field) -> str:
    run = field.run("evaluated")
    trained = field.training(run, "train")
    evaluated = field.training(run, "evaluate", applications=2)
    field.trigger(run, steps=20)
    field.expect(run.end() == "success", f"the run is {run.describe()}")
    before = trained.task.facts()
    run.clear("evaluate")
    evaluated.task.until("deferred", "success", tries=2)
    field.expect(run.end() == "success", f"the run is {run.describe()}")
    field.expect(trained.task.facts() == before, "the training's task was touched")
    return "evaluated twice, trained once"
