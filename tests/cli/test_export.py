"""``airflow tony export``."""

from __future__ import annotations

from tests.cli.conftest import Tony
from tests.hooks.jobs import ended, identity, job, running
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook

COMMAND = """
while [ ! -e "$TONY_EXPORT_REQUEST" ]; do sleep 0.05; done
rm "$TONY_EXPORT_REQUEST"; mkdir "$TONY_EXPORT_DIR/half"; echo some > "$TONY_EXPORT_DIR/half/weights"
mv "$TONY_EXPORT_DIR/half" "$TONY_EXPORT_DIR/step-7"
exec sleep 600
"""


def test_a_model_is_exported_from_the_command_line(tony: Tony, local: TonyHook) -> None:
    """By a program that is a shell script."""
    which = identity(local, "export")
    application_id = local.submit(SubmissionRequest(job(COMMAND), which)).application_id
    running(local, which, application_id)
    done = tony("export", application_id, "--timeout", "60s", "--reason", "to look at it")
    uri = f"{local.job(application_id, which).directory}/exports/step-7"
    assert (done.code, done.out) == (0, f"{uri}\n"), done.error
    # The command asks the master; status.json on the store follows at the master's next write.
    until(lambda: uri in "".join(tony("status", application_id).out.split()), "the export in airflow tony status")
    asked = tony("export", application_id, "--timeout", "0s")
    assert asked.out.splitlines() == [
        f"Requested an export of the model of {application_id}",
        f"Newest export so far: step 7, {uri}",
        "Newest checkpoint so far: none",
    ]
    late = tony("export", application_id, "--timeout", "1s")
    assert late.code == 1
    assert "within 1 s. The request remains" in late.error
    local.kill(application_id, "seen")
    ended(local, application_id)
    over = tony("export", application_id)
    assert (over.code, "has already ended" in over.error) == (1, True)
