"""``airflow tony suspend`` and ``airflow tony resume``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.conftest import Tony
from tests.hooks.jobs import SECONDS, ended, identity, job, running
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook

COMMAND = """
echo before the suspension
test -z "$TONY_RESUME_STEP" || { echo "from step $TONY_RESUME_STEP"; exec sleep 600; }
while [ ! -e "$TONY_CHECKPOINT_REQUEST" ]; do sleep 0.05; done
rm "$TONY_CHECKPOINT_REQUEST"; cd "$TONY_CHECKPOINT_DIR"; echo some > mine-7
echo '{"step": 7, "entry": "mine-7", "files": [{"path": "mine-7", "size": 5}]}' > half; mv half mine-7.tony.json
exec sleep 600
"""


def reached(local: TonyHook, which: Identity, application_id: str, state: str) -> None:
    def there() -> bool:
        status = local.job_status(which, application_id)
        return status is not None and status.state.value == state

    until(there, f"{application_id} {state}", SECONDS)


def test_a_job_is_suspended_and_resumed_from_the_command_line(tony: Tony, local: TonyHook, tmp_path: Path) -> None:
    """By a program that is a shell script."""
    which = identity(local, "suspend")
    application_id = local.submit(SubmissionRequest(job(COMMAND, timeouts={"grace": "2s"}), which)).application_id
    running(local, which, application_id)
    story = tony("status", application_id, "--story", "worker:0")
    assert story.code == 0, story.error
    assert "REGISTERED -> RUNNING" in story.out
    assert "its user process has started" in story.out
    missing = tony("status", application_id, "--story", "worker:7")
    assert (missing.code, "there is no such task; the tasks of the job are worker:0" in missing.error) == (1, True)
    asked = tony("suspend", application_id, "--reason", "the day belongs to others")
    assert asked.code == 0, asked.error
    first, second = asked.out.splitlines()
    assert first.startswith(f"{application_id} saves a checkpoint, and releases its containers within ")
    assert second == f"`airflow tony resume {application_id}` resumes the job"
    reached(local, which, application_id, "SUSPENDED")
    shown = tony("status", application_id).out
    assert "the day belongs to others" in " ".join(shown.split())
    (listed,) = json.loads(tony("list", "--output", "json").out)
    assert (listed["application_id"], listed["state"]) == (application_id, "SUSPENDED")
    assert re.search(r"checkpoint +snapshot 1 \(step 7, saved \S+ UTC\): \d+ B in 2 files,", shown)
    (told,) = json.loads(tony("status", application_id, "--output", "json").out)
    assert [(each["files"], each["suspicion"]) for each in told["checkpoints"]] == [(2, "")]
    assert local.storage().exists(told["checkpoints"][0]["uri"])
    copied = tony("checkpoint", application_id, str(tmp_path / "copy"))
    assert copied.out.startswith(f"{tmp_path}/copy holds snapshot 1 (step 7, saved ")
    assert (tmp_path / "copy" / "mine-7").read_text() == "some\n"
    assert "already exists" in tony("checkpoint", application_id, str(tmp_path / "copy")).error
    missing = tony("checkpoint", application_id, str(tmp_path / "other"), "--snapshot", "4")
    assert "has no snapshot 4 in the storage; it has snapshot 1 (step 7, saved " in missing.error
    assert not (tmp_path / "other").exists()

    again = tony("suspend", application_id)
    assert (again.code, again.out) == (0, f"{application_id} is suspended already\n")
    for command, purpose in (("save", "save a checkpoint"), ("export", "export a model")):
        refused = tony(command, application_id)
        assert (refused.code, f"the job is suspended: no task runs that could {purpose}" in refused.error) == (1, True)
    assert "before the suspension\n" in tony("logs", application_id).out

    resumed = tony("resume", application_id)
    assert resumed.out == f"{application_id} requests its containers, and resumes from its newest checkpoint\n"
    reached(local, which, application_id, "RUNNING")
    needless = tony("resume", application_id)
    assert (needless.code, needless.out) == (0, f"{application_id} continues; it was not suspended\n")
    status = local.job_status(which, application_id)
    assert status is not None
    assert (status.resumed_step, status.generation, status.restarts) == (7, 2, 0)

    local.kill(application_id, "seen")
    ended(local, application_id)
    for command in ("suspend", "resume"):
        over = tony(command, application_id)
        assert (over.code, "has already ended" in over.error) == (1, True)
