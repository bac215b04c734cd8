"""What authors do at their desks."""

from __future__ import annotations

import json

from tests.e2e.field import Field
from tests.e2e.installation import AT_A_DESK
from tests.e2e.row import row
from tests.e2e.runs import runs_of

TEST_SECONDS = 400.0


@row("dags-test", "`airflow dags test` of a deferrable training, in a process of its own")
def dags_test(field: Field) -> str:
    """The trigger runs inline, and is cancelled after its event: that must not end the application as killed."""
    field.claim(AT_A_DESK)
    known = {run.run_id for run in runs_of(field.rest, AT_A_DESK)}
    done = field.airflow.command(
        "dags",
        "test",
        AT_A_DESK,
        "--conf",
        json.dumps({"steps": 20}),
        seconds=TEST_SECONDS,
        PYTHONPATH=str(field.installation.dags),  # which Airflow 3.0 would not look at
    )
    (field.folder / "output.txt").write_text(done.stdout + done.stderr)
    field.expect(done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-500:]}")
    new = [run for run in runs_of(field.rest, AT_A_DESK) if run.run_id not in known]
    assert len(new) == 1, f"runs of it: {new}"
    training = field.training(new[0])
    field.runs.append(new[0])
    field.expect(new[0].state == "success", f"the run is {new[0].describe()}")
    ended = training.newest
    field.expect(ended["finalStatus"] == "SUCCEEDED", f"the cluster says {ended['finalStatus']}")
    return f"exit code {done.returncode}, application {ended['finalStatus']}"
