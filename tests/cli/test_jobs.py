"""Jobs without a DAG: submitted, looked at, read and ended from the command line, on each backend."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from airflow.models import Connection
from airflow.utils.session import create_session

from tests.cli.conftest import Tony
from tests.hadoop.cluster import HadoopCluster
from tests.hooks.jobs import SECONDS, ended, running
from tests.permissions import set_permission
from tests.waiting import until
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.errors import StoragePermissionDenied
from tony_provider.watching.termination import KillOrder, end_job

JOB = """
framework: standalone
tasks:
  worker: {instances: 2, memory: 256MiB, command: "sh say.sh"}
files: [say.sh]
secrets: [API_KEY]
"""
SAY = """
echo "hello from $TONY_TASK_INDEX with $API_KEY"
echo '{"step": 3, "total_steps": 9, "loss": 0.5}' >> "$TONY_METRICS_FILE"
while [ -n "$WAIT" ] && [ ! -e "$WAIT" ]; do sleep 0.1; done
[ "$TONY_TASK_INDEX" != 0 ] || echo '{"auc": 0.75}' > "$TONY_RESULT_FILE"
echo "goodbye from $TONY_TASK_INDEX"
exit "${EXIT:-0}"
"""


@pytest.fixture(params=["local", pytest.param("yarn", marks=pytest.mark.long)])
def hook(request: pytest.FixtureRequest) -> TonyHook:
    found: TonyHook = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "say.sh").write_text(SAY)
    file = tmp_path / "greeting.tony.yaml"
    file.write_text(JOB)
    monkeypatch.setenv("API_KEY", "open-sesame")
    monkeypatch.setenv("AIRFLOW__TONY__POLL_INTERVAL", "0.5")
    return str(file)


def test_a_job_is_submitted_and_waited_for(tony: Tony, hook: TonyHook, job: str) -> None:
    done = tony("submit", job, "--secret", "API_KEY", "--wait", "--run-id", "one")
    assert done.code == 0, done.error
    assert "(greeting), of the training tony-" in done.out
    assert "Job is SUCCEEDED" in done.out
    assert done.out.endswith('Succeeded\nReturned: {"auc": 0.75}\n')
    application_id = next(word for word in done.out.split() if word.startswith("application_"))
    tag = hook.identity(dag_id=f"cli:{hook.get_conn().user}", run_id="one", task_id="greeting").tag

    status = json.loads(tony("status", "--tag", tag, "--output", "json").out)[0]
    assert status["application_id"] == application_id
    assert status["job"]["state"] == "SUCCEEDED"
    assert status["application"]["final_status"] == "SUCCEEDED"
    shown = tony("status", application_id).out
    assert "step 3 of 9 (33 %)" in shown
    assert "worker:1" in shown
    plain = tony("status", application_id, "--output", "plain").out.splitlines()
    assert [line.split()[:2] for line in plain[1:]] == [["worker:0", "SUCCEEDED"], ["worker:1", "SUCCEEDED"]]

    logs = tony("logs", application_id)
    assert "==> worker:0 <==" in logs.out
    assert f"hello from 1 with {'*' * len('open-sesame')}" in logs.out
    one = tony("logs", application_id, "--task", "worker:1")
    assert one.out.splitlines()[-1] == "goodbye from 1"
    assert "hello from 0" not in one.out
    missing = tony("logs", application_id, "--task", "ps:0")
    assert (missing.code, missing.out) == (1, "")
    assert "no log of ps:0 is stored in " in missing.error
    assert "there are logs of worker:0, worker:1" in missing.error
    assert "registered" in tony("logs", application_id, "--task", "am").out

    assert application_id not in tony("list").out
    ended = json.loads(tony("list", "--ended", "--output", "json").out)
    row = next(row for row in ended if row["application_id"] == application_id)
    assert (row["name"], row["final_status"], row["tag"]) == ("greeting", "SUCCEEDED", tag)
    again = tony("kill", application_id)
    assert (again.code, again.out) == (0, f"{application_id} has already ended\n")


def test_a_job_that_fails_says_why(tony: Tony, local: TonyHook, job: str) -> None:
    sets = ["--set", "env.EXIT=7", "--set", "restart.budget=0", "--set", "tasks.worker.instances=1"]
    done = tony("submit", job, "--secret", "API_KEY", "--wait", *sets)
    assert done.code == 1
    assert "exit code 7" in done.error
    assert "Traceback" not in done.error
    (application_id,) = set(re.findall(r"application_\d+_\d+", done.out + done.error))
    events = json.loads(tony("status", application_id, "--story", "worker:0", "--output", "json").out)
    (failed,) = [each for each in events if each["change"] == "failed"]
    assert "exit code 7" in failed["reason"]
    missing = tony("status", application_id, "--story", "worker:7")
    assert (missing.code, f"{application_id} has no events of worker:7" in missing.error) == (1, True)


def test_a_running_job_is_followed_and_ended(tony: Tony, hook: TonyHook, job: str, tmp_path: Path) -> None:
    wait = ["--set", f"env.WAIT={tmp_path}/never", "--set", "tasks.worker.instances=1"]
    submitted = tony("submit", job, "--secret", "API_KEY", "--quiet", "--name", "watched", *wait)
    assert submitted.code == 0, submitted.error
    application_id = submitted.out.strip()
    found = hook.application_ref(application_id=application_id)
    assert found is not None
    assert found.identity is not None
    running(hook, found.identity, application_id)
    live = {row["application_id"]: row for row in json.loads(tony("list", "--output", "json").out)}
    assert live[application_id]["state"] == "RUNNING"
    assert application_id not in tony("list", "--queue", "nowhere").out
    assert "RUNNING" in tony("status", application_id).out

    until(lambda: "hello from 0" in tony("logs", application_id).out, "the log of a running task", SECONDS)

    command = [sys.executable, "-m", "airflow", "tony", "logs", "--follow", "-t", "worker:0", application_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            assert any("hello from 0" in line for line in follower.stdout)
            killed = tony("kill", application_id, "--reason", "seen enough", "--grace", "1s")
            assert (killed.code, killed.out) == (0, f"{application_id} has ended\n")
            follower.stdout.read()
            assert follower.wait(SECONDS) == 0
        finally:
            follower.kill()
    application = hook.application(application_id)
    assert application is not None
    assert "Killed by `airflow tony kill`: seen enough" in application.diagnostics
    assert not hook.storage().exists(hook.layout.launch_dir(found.identity, application_id))
    followed = tony("status", "--watch", application_id)
    assert followed.code == 1
    assert "seen enough" in followed.error


def test_two_people_may_have_the_same_run_id(
    tony: Tony, yarn: TonyHook, hadoop: HadoopCluster, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their staging directories differ, and so do their trainings."""
    connection = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])
    connection["login"] = "bob"
    connection["extra"]["staging_dir"] = f"{hadoop.fs_default}/user/bob/{uuid4().hex}"
    monkeypatch.setenv("AIRFLOW_CONN_BOBS", json.dumps(connection))
    submit = ["submit", job, "--secret", "API_KEY", "--quiet", "--run-id", "nightly", "--set", f"env.WAIT={tmp_path}/x"]
    submitted = [tony(*submit), tony(*submit, "--conn-id", "bobs")]
    ids = [each.out.strip() for each in submitted]
    try:
        assert [each.code for each in submitted] == [0, 0], submitted
        live = {row["application_id"]: row["user"] for row in json.loads(tony("list", "--output", "json").out)}
        assert [live.get(each) for each in ids] == ["alice", "bob"]
    finally:
        with TonyHook("bobs") as bobs:
            for hook, application_id in zip((yarn, bobs), ids, strict=True):
                hook.kill(application_id, "seen enough")
                ended(hook, application_id)
            bobs.storage().remove(bobs.layout.root, recursive=True)


@pytest.mark.long
def test_what_may_not_be_removed_is_no_reason_to_fail(
    tony: Tony, yarn: TonyHook, hadoop: HadoopCluster, job: str
) -> None:
    """As when somebody looks who may only read: how the job has ended is what counts."""
    submitted = tony("submit", job, "--secret", "API_KEY", "--quiet")
    application_id = submitted.out.strip()
    found = yarn.application_ref(application_id=application_id)
    assert found is not None
    assert found.identity is not None
    ended(yarn, application_id)
    directory = yarn.job(application_id, found.identity).directory
    set_permission(hadoop, "alice", directory, 0o500)
    try:
        with pytest.raises(StoragePermissionDenied):
            yarn.job(application_id, found.identity).clean_up()
        watched = tony("status", "--watch", application_id)
        assert watched.code == 0, watched.error
        assert end_job(yarn.job(application_id, found.identity), KillOrder("a test"))
    finally:
        set_permission(hadoop, "alice", directory, 0o700)


def test_as_a_process(local: TonyHook, job: str) -> None:
    def airflow(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "airflow", "tony", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    done = airflow("submit", job, "--secret", "API_KEY", "--wait")
    assert done.returncode == 0, done.stderr
    assert "\nSucceeded\n" in done.stdout
    # A connection of Airflow's database, where `airflow connections add` puts it.
    extra = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])["extra"]
    with create_session() as session:
        session.add(Connection(conn_id="tony_kept", conn_type="tony", extra=json.dumps(extra)))
    kept = airflow("list", "--all", "--conn-id", "tony_kept", "--output", "json")
    assert kept.returncode == 0, kept.stderr
    assert next(word for word in done.stdout.split() if word.startswith("application_")) in kept.stdout


def test_all_that_is_wrong_is_said_at_once(tony: Tony, local: TonyHook, job: str) -> None:
    wrong = tony("check", job, "--set", "tasks.worker.memory=lots", "--set", "tasks.worker.instances=-1")
    assert wrong.code == 1
    assert "tasks.worker.memory" in wrong.error
    assert "tasks.worker.instances" in wrong.error
    assert "Traceback" not in wrong.error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["submit", "{job}"], "no value was given for 'API_KEY'"),
        (["submit", "{job}", "--secret", "NOT_THERE"], "the environment has no variable NOT_THERE"),
        (["submit", "/nowhere/job.tony.yaml"], "/nowhere/job.tony.yaml cannot be read: No such file or directory"),
        (["submit", "{template}"], "contains a template, which only a DAG renders"),
        (["submit", "{broken}"], "broken.tony.yaml: the job specification has one problem"),
        (["submit", "{job}", "--set", "tasks"], "should be key=value, such as tasks.worker.instances=4"),
        (["submit", "{job}", "--set", "env=1", "--set", "env.A=1"], "is below a key that also has a value"),
        (["submit", "{job}", "--set", "env.A=1", "--set", "env=1"], "has a value, and so does a key below"),
        (["status", "application_1_0001"], "knows of application_1_0001"),
        (["status"], "name a job: by its application ID"),
        (["logs", "application_1_0001"], "knows of application_1_0001"),
        (["kill", "--tag", "tony-none"], "knows of tony-none"),
        (["list", "--conn-id", "tony_missing"], "there is no connection 'tony_missing'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_message(
    tony: Tony, local: TonyHook, job: str, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    template = tmp_path / "template.tony.yaml"
    template.write_text('{framework: standalone, tasks: {worker: {command: "echo {{ ds }}"}}}')
    broken = tmp_path / "broken.tony.yaml"
    broken.write_text("framework: [standalone")
    said = tony(*[each.format(job=job, template=template, broken=broken) for each in arguments])
    assert said.code == 1
    assert expected in said.error
    assert "Traceback" not in said.error


@pytest.mark.usefixtures("local")
def test_a_check_tells_what_the_inputs_hold(tony: Tony, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(5):
        (data / f"{number}.csv").write_bytes(b"x" * 1024)
    file = tmp_path / "reads.tony.yaml"
    tasks = '{worker: {command: "true", instances: 2, memory: 64MiB}}'
    file.write_text(f"framework: standalone\ninputs: {{days: '{data}/*.csv'}}\ntasks: {tasks}\n")
    said = tony("check", str(file))
    assert said.error == ""
    holds = "5 shards (5 KiB), in parts of 2 shards (2 KiB) to 3 shards (3 KiB)"
    assert f"  input days: {holds}; a part for each task; read by worker\n" in said.out


def test_a_job_is_checked_against_the_live_cluster(tony: Tony, yarn: TonyHook, job: str, tmp_path: Path) -> None:
    good = tony("check", job)
    assert (good.code, good.error) == (0, "")
    assert "greeting (standalone: 2 worker) can run" in good.out
    risky = tony("check", job, "--set", "framework=pytorch")
    [line] = [line for line in risky.out.splitlines() if line.startswith("warning: ")]
    assert "PyTorch accepts any client" in line
    (tmp_path / "say.sh").unlink()
    bad = tony("check", job, "--queue", "nowhere", "--set", "tasks.worker.memory=900GiB")
    assert bad.code == 1
    for expected in (
        "no queue 'nowhere'",
        "tasks.worker.memory: 921600 MiB in one container is more",
        "'say.sh' does not exist",
    ):
        assert expected in bad.error


def test_the_doctor(tony: Tony, yarn: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    good = tony("doctor")
    assert good.code == 0, good.out
    assert "as alice" in good.out
    connection = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])
    connection["extra"]["queue"] = "nowhere"
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    bad = tony("doctor", "--output", "json")
    assert bad.code == 1
    assert "1 problem found" in bad.error
    [problem] = [row for row in json.loads(bad.out) if row["outcome"] == "problem"]
    assert problem["checked"] == "Queue nowhere"
