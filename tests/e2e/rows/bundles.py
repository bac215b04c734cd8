"""Where DAG files and training scripts come from."""

from __future__ import annotations

import shutil
import uuid

from tests.e2e.field import Field
from tests.e2e.installation import PROGRAMS
from tests.e2e.row import row
from tests.e2e.runs import Run
from tests.waiting import until

OTHER_PROGRAM = """\
import diary

diary.note_start()
diary.note("serving")  # the sign of the second version
"""


@row("bundle-subfolder", "DAG and training script in a subfolder of a bundle")
def subfolder(field: Field) -> str:
    run = field.run("bundle_clicks")
    trainings = [field.training(run, task_id) for task_id in ("train", "train_again")]
    field.trigger(run)
    field.expect(run.end() == "success", f"the run is {run.describe()}")
    for training in trainings:
        field.expect(bool(training.diary.entries("ended")), f"{training.task.task_id} did not train")
    return "both tasks trained with the script beside the DAG file"


@row("bundle-versioned", "a new commit in a git bundle while deferred, then the application fails")
def versioned(field: Field) -> str:
    """The run stays with its commit: the retry goes on with the very script, and so does the task after it."""
    scripts = field.installation.checkout / "pipelines" / "versioned" / "scripts"
    shutil.copy(PROGRAMS / "count.py", scripts / "training.py")
    with (scripts / "training.py").open("a") as script:
        script.write(f"\n# {uuid.uuid4()}\n")  # each time that the row runs there is something to commit
    first = _committed(field, "Train by counting")

    run = field.run("bundle_versioned")
    training = field.training(run, pace=0.3, applications=2)
    after = field.training(run, "train_again")
    field.trigger(run)
    training.task.until("deferred")
    training.until_committed(10)
    (scripts / "training.py").write_text(OTHER_PROGRAM)
    second = _committed(field, "Train otherwise")
    training.fail()
    training.task.until("deferred", tries=2)
    training.hurry()
    field.expect(run.end() == "success", f"the run is {run.describe()}")
    begun = training.begun_at()
    field.expect(len(begun) == 2 and begun[1] >= 10, f"its user processes began at the steps {begun}")
    field.expect(bool(after.diary.entries("ended")), "the task after it did not run the first version's script")
    field.expect(_version(run) == first, f"the run is of {_version(run)}, and not of {first}")

    later = field.run("bundle_versioned")
    others = [field.training(later, task_id) for task_id in ("train", "train_again")]
    field.trigger(later)
    field.expect(later.end() == "success", f"the later run is {later.describe()}")
    for training in others:
        field.expect(bool(training.diary.entries("serving")), "the later run did not run the second version's script")
    field.expect(_version(later) == second, f"the later run is of {_version(later)}, and not of {second}")
    return f"the run stayed with its commit and went on from step {begun[-1]}; the next run took the new one"


def _committed(field: Field, message: str) -> str:
    """Commit, and wait until Airflow's runs are of that commit; its name."""
    # The DAG file as well: one that has not changed is parsed again, and its DAG's version known, after minutes only.
    with (field.installation.checkout / "pipelines" / "versioned" / "dag.py").open("a") as dag:
        dag.write(f"# {message}\n")
    commit = field.installation.commit(message)
    path = "/dags/bundle_versioned"
    until(lambda: field.rest.call("GET", path)["bundle_version"] == commit, f"the commit {commit} to be parsed")
    return commit


def _version(run: Run) -> str:
    return str(run.facts()["bundle_version"])
