"""The hook on this machine's own cluster, with the real application master and executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from airflow.cli.cli_parser import get_parser
from starlette.testclient import TestClient

from tests.files import files_below
from tests.hooks.conftest import AddConnection
from tests.hooks.jobs import ended, identity, job, processes_with, running
from tony_provider.cluster.errors import ConnectionProblem, JobRejected, SourceMissing, StagingFailed
from tony_provider.cluster.interface import ApplicationFilter, ApplicationState
from tony_provider.cluster.local.application_folder import ApplicationFolder
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common import contract, helper_processes
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import FinalStatus, JobState
from tony_provider.runtime.storage.base import write_atomically
from tony_provider.runtime.storage.uris import join


def staged(hook: TonyHook) -> Path:
    return Path(hook.layout.root.removeprefix("file://"))


def folder(hook: TonyHook, application_id: str) -> ApplicationFolder:
    return ApplicationFolder(staged(hook) / "cluster" / "applications" / application_id)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("field", ["staging_dir", "local_root"])
def test_a_directory_that_another_local_user_made_is_refused_before_anything_is_done(
    add_connection: AddConnection, tmp_path: Path, field: str
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    foreign.chmod(0o777)
    os.chown(foreign, 4001, 4001)
    extra = {"backend": "local", "staging_dir": str(tmp_path / "own"), field: str(foreign)}
    add_connection("tony_default", extra=extra)
    with TonyHook() as hook, pytest.raises(ConnectionProblem, match=f"^{field} .* belongs to user 4001 instead of"):
        hook.submit(SubmissionRequest(job("true"), identity(hook)))
    assert list(foreign.iterdir()) == []


def test_a_runtime_archive_of_another_release_is_refused(add_connection: AddConnection, tmp_path: Path) -> None:
    archive = tmp_path / "tony-runtime.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("cp311.zip", b"")  # where the runtime was before
    extra = {"backend": "local", "staging_dir": str(tmp_path / "own"), "runtime_archive": str(archive)}
    add_connection("tony_default", extra=extra)
    with TonyHook() as hook, pytest.raises(SourceMissing, match="is not a runtime archive of this release; build one"):
        hook.submit(SubmissionRequest(job("true"), identity(hook)))


def test_a_job_from_submission_to_its_end(local: TonyHook, tmp_path: Path) -> None:
    (tmp_path / "hello.sh").write_text("echo hello from $TONY_TASK_INDEX\n")
    which = identity(local)
    remembered: list[str] = []
    application_id = local.submit(
        SubmissionRequest(
            job("sh hello.sh", {"instances": 2}, files=["hello.sh"], tags=["Nightly"]), which, search_path=[tmp_path]
        ),
        before_submit=lambda submitted: remembered.append(submitted.application_id),
    ).application_id
    assert remembered == [application_id]
    application = ended(local, application_id)
    assert (application.state, application.final_status) == (ApplicationState.FINISHED, FinalStatus.SUCCEEDED)
    assert application.tags == [which.tag, "nightly"]
    assert application.finished_ms
    assert application.finished_ms >= application.started_ms > 0
    status = local.job_status(which, application_id)
    assert status is not None
    assert status.state is JobState.SUCCEEDED
    assert b"hello from 1" in (local.job(application_id, which).kept_log("worker:1", 1 << 20) or b"")
    local.job(application_id, which).clean_up()
    assert local.find(which) == []
    assert not processes_with(application_id)
    assert not (folder(local, application_id).path / "containers").exists()
    assert not local.storage().exists(join(local.job(application_id, which).directory, contract.LAUNCH_DIR))


def test_a_live_application_is_found_by_its_training_and_killed(local: TonyHook) -> None:
    which = identity(local)
    application_id = local.submit(SubmissionRequest(job("sleep 600", timeouts={"grace": "2s"}), which)).application_id
    assert [application.id for application in local.find(which)] == [application_id]
    assert local.find(identity(local, "another")) == []
    running(local, which, application_id)
    local.kill(application_id, "killed by a test")
    application = local.application(application_id)
    assert application is not None
    assert (application.state, application.final_status) == (ApplicationState.KILLED, FinalStatus.KILLED)
    assert application.diagnostics == "killed by a test"
    assert not processes_with(application_id)
    assert local.find(which) == []
    local.kill(application_id, "again")
    local.kill("application_1_1", "never there")


def test_what_killed_writers_have_left_is_cleaned_up(local: TonyHook) -> None:
    which = identity(local)
    application_id = local.submit(SubmissionRequest(job("sleep 600"), which)).application_id
    running(local, which, application_id)
    local.kill(application_id, "killed by a test")
    ended(local, application_id)
    directory = local.job(application_id, which).directory
    names = [".tony-tmp-01234567", "logs/.tony-tmp-89abcdef", "model.tmp-1234abcd/weights"]
    for name in names:
        local.storage().write(join(directory, *name.split("/")), b"half of it")
    kept = join(directory, "logs", "worker-0.log")
    local.storage().write(kept, b"whole", overwrite=True)
    local.job(application_id, which).clean_up()
    assert [name for name in names if local.storage().exists(join(directory, *name.split("/")))] == []
    assert local.storage().exists(kept)


def test_every_live_application_is_listed_whatever_its_training(local: TonyHook) -> None:
    cluster = local.get_conn()
    assert cluster.live() == []
    first = local.submit(SubmissionRequest(job("sleep 600"), identity(local))).application_id
    second = local.submit(SubmissionRequest(job("sleep 600"), identity(local, "another"))).application_id
    assert [application.id for application in cluster.live()] == [second, first]
    local.kill(second, "enough")
    assert [application.id for application in cluster.live()] == [first]
    assert [application.id for application in cluster.applications(ApplicationFilter(live=False))] == [second]
    assert [application.id for application in cluster.applications(ApplicationFilter())] == [second, first]
    assert cluster.applications(ApplicationFilter(user="somebody else")) == []
    local.kill(first, "enough")
    assert cluster.live() == []


def test_an_application_master_that_is_killed_leaves_nothing_running(local: TonyHook) -> None:
    which = identity(local)
    # The inner process leaves its process group, and must be found all the same.
    application_id = local.submit(
        SubmissionRequest(job("setsid sleep 600 & sleep 600", {"instances": 2}), which)
    ).application_id
    running(local, which, application_id)
    master = folder(local, application_id).master()
    assert master is not None
    assert len(processes_with(f"TONY_APPLICATION_ID={application_id}")) >= 4
    master.signal(signal.SIGKILL)
    application = ended(local, application_id)
    assert (application.state, application.final_status) == (ApplicationState.FAILED, FinalStatus.FAILED)
    assert "ended without a report on the job" in application.diagnostics
    assert "RUNNING" in application.diagnostics  # the last lines of its own log
    assert not processes_with(application_id)
    assert not (folder(local, application_id).path / "containers").exists()


@pytest.mark.long
def test_a_master_that_does_not_react_is_killed_after_the_grace_period(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tony_provider.cluster.local.local_cluster._KILL_SLACK", 2.0)
    which = identity(local)
    application_id = local.submit(
        SubmissionRequest(job("sleep 600", timeouts={"grace": "1s", "checkpoint": "1s"}), which)
    ).application_id
    running(local, which, application_id)
    master = folder(local, application_id).master()
    assert master is not None
    master.signal(signal.SIGSTOP)
    local.kill(application_id, "hung")
    application = local.application(application_id)
    assert application is not None
    assert application.state is ApplicationState.KILLED
    assert not processes_with(application_id)


def test_the_application_outlives_the_process_group_that_submitted_it(local: TonyHook) -> None:
    code = """
import os, signal, sys
from tests.hooks.jobs import identity, job
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
hook = TonyHook()
print(hook.submit(SubmissionRequest(job("sleep 600"), identity(hook))), flush=True)
os.killpg(0, signal.SIGKILL)  # as Airflow does it to a task
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, start_new_session=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    application_id = done.stdout.decode().split()[-1]
    which = identity(local)
    assert [application.id for application in local.find(which)] == [application_id]
    running(local, which, application_id)
    local.kill(application_id, "enough")
    assert not processes_with(application_id)


def test_a_number_that_was_given_to_another_process_is_never_killed(local: TonyHook) -> None:
    which = identity(local)
    application_id = local.submit(SubmissionRequest(job("sleep 600"), which)).application_id
    running(local, which, application_id)
    where = folder(local, application_id)
    master = where.master()
    assert master is not None
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            master.signal(signal.SIGKILL)
            assert master.wait_gone(10)
            (where.am_directory / "container_pid").write_text(f"{stranger.pid} {master.start}\n")
            assert ended(local, application_id).state is ApplicationState.FAILED
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_an_application_of_another_machine_is_not_judged(local: TonyHook) -> None:
    which = identity(local)
    application_id = local.submit(
        SubmissionRequest(job("sleep 600", timeouts={"grace": "1s", "checkpoint": "1s"}), which)
    ).application_id
    record = folder(local, application_id).path / "application.json"
    here = record.read_bytes()
    record.write_text(json.dumps({**json.loads(here), "host": "elsewhere"}))
    with pytest.raises(ConnectionProblem, match=r"runs on elsewhere, .* needs all of Airflow on one machine"):
        local.application(application_id)
    record.write_text(json.dumps({**json.loads(here), "boot_id": "before the machine was started again"}))
    assert ended(local, application_id).state is ApplicationState.FAILED
    assert not processes_with(application_id)


def test_a_second_submission_uploads_nothing(local: TonyHook, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('train')\n")
    cache = staged(local) / "cache"
    spec = job("python train.py", files=["train.py"])
    first = local.submit(SubmissionRequest(spec, identity(local), search_path=[tmp_path])).application_id
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert len(files_below(cache)) == 2  # the runtime and the script
    second = local.submit(SubmissionRequest(spec, identity(local, "second"), search_path=[tmp_path])).application_id
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before
    for application_id in (first, second):
        assert ended(local, application_id).final_status is FinalStatus.SUCCEEDED


def test_shards_on_the_store_are_not_uploaded_again(local: TonyHook) -> None:
    shards = join(local.layout.root, "shards")
    for index in range(3):
        write_atomically(local.storage(), join(shards, f"{index:05}.npz"), f"shard {index}".encode())
    which = identity(local)
    spec = job("cat data/*.npz", files=[f"{shards}::data"])
    application_id = local.submit(SubmissionRequest(spec, which)).application_id
    assert ended(local, application_id).final_status is FinalStatus.SUCCEEDED
    assert b"shard 0shard 1shard 2" in (local.job(application_id, which).kept_log("worker:0", 1 << 20) or b"")
    assert len(files_below(staged(local) / "cache")) == 1  # the runtime


def test_user_secrets_are_in_nothing_that_is_written(local: TonyHook, tmp_path: Path) -> None:
    which = identity(local)
    spec = job('test "$API_KEY" = open-sesame && sleep 600', secrets=["API_KEY"], timeouts={"grace": "1s"})
    application_id = local.submit(SubmissionRequest(spec, which, secrets={"API_KEY": "open-sesame"})).application_id
    running(local, which, application_id)
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and b"open-sesame" in path.read_bytes()]
    assert {path.name for path in holding} <= {"tony-application.json"}  # the command itself, which the test wrote so
    assert all(path.read_bytes().count(b"open-sesame") == 1 for path in holding)
    assert not list(tmp_path.rglob("container_tokens"))  # gone as soon as master and executors have read theirs
    local.kill(application_id, "seen enough")


def test_secrets_go_to_the_task_types_that_name_them(local: TonyHook, tmp_path: Path) -> None:
    which = identity(local)
    say = "echo $(env | grep -o '^S[0-9]=' | sort) > "
    spec = parse_job(
        {
            "framework": "standalone",
            "secrets": ["S1", "S2", "S3"],
            "tasks": {
                "worker": {"command": f"{say} {tmp_path}/worker", "memory": "256MiB", "secrets": ["S1", "S3"]},
                "other": {"command": f"{say} {tmp_path}/other", "memory": "256MiB", "secrets": ["S3"]},
                "third": {"command": f"{say} {tmp_path}/third", "memory": "256MiB"},
            },
        }
    )
    application_id = local.submit(
        SubmissionRequest(spec, which, secrets={"S1": "one", "S2": "two", "S3": "three"})
    ).application_id
    assert ended(local, application_id).final_status is FinalStatus.SUCCEEDED
    seen = {name: (tmp_path / name).read_text().split() for name in ("worker", "other", "third")}
    assert seen == {"worker": ["S1=", "S2=", "S3="], "other": ["S2=", "S3="], "third": ["S2="]}


def test_what_a_job_writes_over_its_program_is_not_what_the_next_training_runs(local: TonyHook, tmp_path: Path) -> None:
    program = tmp_path / "train.sh"
    program.write_text("echo honest\n")
    evil = "f=$(readlink -f train.sh); chmod u+w $f; printf 'echo stolen\n' > $f"
    first = local.submit(
        SubmissionRequest(job(evil, files=["train.sh"]), identity(local), search_path=[tmp_path])
    ).application_id
    assert ended(local, first).final_status is FinalStatus.SUCCEEDED
    which = identity(local, "another")
    second = local.submit(
        SubmissionRequest(job("sh train.sh", files=["train.sh"]), which, search_path=[tmp_path])
    ).application_id
    assert ended(local, second).final_status is FinalStatus.SUCCEEDED
    assert b"honest" in (local.job(second, which).kept_log("worker:0", 1 << 20) or b"")


@pytest.mark.parametrize(
    ("fields", "task", "expected"),
    [
        ({}, {"gpus": 1}, "gpus: tasks that run together need 1, but this machine allows one job 0"),
        (
            {},
            {"memory": "99999GiB"},
            "memory: tasks that run together need .* set `local_memory`",
        ),
        ({}, {"instances": 999}, "vcores: tasks that run together need 999"),
        ({}, {"resources": {"fpga": 1}}, "tasks.worker.resources: this machine has no fpga"),
        ({"docker": {"image": "training:1"}}, {}, "docker: .* but am, tasks.worker would use one"),
        ({}, {"docker": {"image": "training:1"}}, "not images, but tasks.worker would use one"),
        ({"secrets": ["API_KEY"]}, {}, "secrets: no value was given for 'API_KEY'"),
    ],
)
def test_a_job_that_cannot_run_here(
    local: TonyHook, fields: dict[str, object], task: dict[str, object], expected: str
) -> None:
    with pytest.raises(JobRejected, match=expected):
        local.submit(SubmissionRequest(job("true", task, **fields), identity(local)))
    assert not staged(local).exists()


def test_a_missing_file_leaves_nothing_behind(local: TonyHook, tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"files\[0\]: 'nowhere.py' does not exist; searched"):
        local.submit(SubmissionRequest(job(files=["nowhere.py"]), identity(local), search_path=[tmp_path]))
    assert not staged(local).exists()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("nothing-*", r"inputs\.x\.paths\[0\]: .*nothing-\* matches no file"),
        ("one", r"inputs\.x: 1 shard for 2 tasks \(worker\); with `deal: static`"),
        (
            ["*", "two", "three"],
            r"inputs\.x\.paths\[1\]: .*two does not exist; .* inputs\.x\.paths\[2\]: .*three does not exist",
        ),
    ],
)
def test_an_input_that_is_not_there_leaves_nothing_behind(
    local: TonyHook, tmp_path: Path, written: str | list[str], words: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one").write_text("1")
    paths = [f"{tmp_path}/data/{path}" for path in ([written] if isinstance(written, str) else written)]
    inputs = {"x": {"paths": paths}}
    with pytest.raises(SourceMissing, match=words):
        local.submit(SubmissionRequest(job("true", {"instances": 2}, inputs=inputs), identity(local)))
    assert not staged(local).exists()


def test_a_staging_directory_that_is_no_directory(local: TonyHook) -> None:
    staged(local).write_text("a file")
    with pytest.raises(StagingFailed, match="could not be staged"):
        local.submit(SubmissionRequest(job(), identity(local)))
    assert not processes_with("tony/launch.sh")


def test_what_remember_raises_stops_the_submission(local: TonyHook) -> None:
    which = identity(local)

    def fail(_: TonyJob) -> None:
        raise RuntimeError("the state store is down")

    with pytest.raises(RuntimeError, match="the state store is down"):
        local.submit(SubmissionRequest(job(), which), before_submit=fail)
    assert local.find(which) == []
    assert not (staged(local) / "jobs" / which.name).exists()


def test_an_interpreter_that_does_not_suit_says_so_in_the_diagnostics(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = tmp_path / "tools"
    empty.mkdir()
    for name in ("sh", "sed", "cut", "cat", "mkdir", "mv", "uname"):
        (empty / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(empty))
    python, command = sys.executable, helper_processes.helper_command
    # Unpacking goes on with the one of this process.
    monkeypatch.setattr(helper_processes, "helper_command", lambda *what: [python, *command(*what)[1:]])
    monkeypatch.setattr(sys, "executable", str(empty / "python"))
    application_id = local.submit(SubmissionRequest(job(), identity(local))).application_id
    application = ended(local, application_id)
    assert application.state is ApplicationState.FAILED
    assert "no Python on" in application.diagnostics


def test_the_connection_can_be_tested(local: TonyHook) -> None:
    user = local.get_conn().user
    succeeded, message = local.test_connection()
    assert succeeded
    assert f"as {user}:\n- Staging directory {local.layout.root}: a file was written" in message
    assert not staged(local).exists()


def test_what_is_no_application_id_is_not_known(local: TonyHook) -> None:
    for strange in ("../../etc", "application_1", ""):
        assert local.application(strange) is None
        assert local.job(strange).master_log() == ""
        local.kill(strange, "never there")


def test_nobody_is_impersonated_here(local: TonyHook) -> None:
    with TonyHook(proxy_user="somebody") as hook, pytest.raises(ConnectionProblem, match="never as somebody"):
        hook.submit(SubmissionRequest(job(), identity(hook)))
    with TonyHook(proxy_user=local.get_conn().user) as hook:
        hook.get_conn()


def test_airflows_button_tests_a_connection_that_was_added_as_documented(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's form sends the port 0 for a connection without a port, and rejects the difference."""
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    monkeypatch.setenv("AIRFLOW__CORE__TEST_CONNECTION", "Enabled")
    app = create_app(apps="core")
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="admin"))
    extra = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])["extra"]
    answers = {}
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as client:
        for name, *port in (("without",), ("with", "--conn-port", "0")):
            words = ["connections", "add", name, "--conn-type", "tony", "--conn-extra", json.dumps(extra), *port]
            args = get_parser().parse_args(words)
            args.func(args)
            form = client.get(f"/api/v2/connections/{name}").json()
            sent = {
                **form,
                "port": form["port"] or 0,
                **{key: form[key] or "" for key in ("host", "login", "password")},
            }
            answer = client.post("/api/v2/connections/test", json={key: sent[key] for key in sent if key != "schema"})
            answers[name] = answer.status_code, answer.json().get("status")
    assert answers == {"without": (400, None), "with": (200, True)}
