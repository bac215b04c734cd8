"""Running jobs are asked to stop and for checkpoints: on this machine, and on a real YARN through its own web proxy."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.hadoop.cluster import HadoopCluster
from tests.hooks.conftest import AddConnection, add_yarn
from tests.hooks.jobs import ended, identity, job, processes_with, running
from tests.permissions import open_to_all
from tests.waiting import settled, until
from tony_provider.cluster.errors import ClusterAuthError, MasterOutOfReach, SubmissionRefused, UnexpectedAnswer
from tony_provider.cluster.interface import ApplicationState
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.identity import Identity, Layout
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.checkpoint.stored_checkpoint import WaitingTry
from tony_provider.runtime.common.codec import load_json
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus
from tony_provider.watching import kill_switch, termination
from tony_provider.watching.kill_switch import KillSwitch
from tony_provider.watching.termination import killed_by_airflow

# Says when it is told to end, and takes a moment for it.
POLITE = (
    "trap 'echo saving > {marker}; sleep 1; echo saved > {marker}; exit 0' TERM; echo up > {marker}; sleep 600 & wait"
)


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.long), "yarn"])
def hook(request: pytest.FixtureRequest) -> TonyHook:
    found: TonyHook = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """In a directory that any user may write."""
    open_to_all(tmp_path)
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    return folder / "marker"


def start(hook: TonyHook, command: str, **fields: Any) -> tuple[Identity, str]:
    which = identity(hook, "control")
    application_id = hook.submit(SubmissionRequest(job(command, **fields), which)).application_id
    running(hook, which, application_id)
    return which, application_id


def polite(hook: TonyHook, marker: Path, **fields: Any) -> tuple[Identity, str]:
    which, application_id = start(hook, POLITE.format(marker=marker), **fields)
    until(marker.exists, "the user process")
    return which, application_id


def master_of(application_id: str) -> int:
    """The process of its application master."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_with(application_id)}
    [found] = [pid for pid, command in commands.items() if b"/start.py\0am\0" in command]
    return found


@pytest.mark.long
def test_a_stop_leaves_its_grace_and_nobody_needs_to_wait_for_the_end(hook: TonyHook, marker: Path) -> None:
    """Airflow kills a task's process some seconds after its signal, long before a grace may be over."""
    which, application_id = polite(hook, marker)
    switch = KillSwitch()
    switch.job = hook.job(application_id, which)
    switch.pull("enough of it, naïve")
    application = ended(hook, application_id)
    assert (application.state, application.final_status) == (ApplicationState.FINISHED, FinalStatus.KILLED)
    assert application.diagnostics == "Killed by Airflow: enough of it, naïve"
    assert killed_by_airflow(application)
    assert marker.read_text() == "saved\n"
    status = hook.job_status(which, application_id)
    assert status is not None
    assert status.state is JobState.KILLED
    assert not hook.storage().exists(Layout(hook.layout.root).launch_dir(which, application_id))
    assert not settled(lambda: processes_with(application_id))


def test_a_kill_in_the_midst_of_a_submission_finds_the_application_once_it_is_there(hook: TonyHook) -> None:
    """The task's process may be gone before it sees to that itself."""
    which = identity(hook, "control")
    switch, seen = KillSwitch(), []

    def killed(submitted: TonyJob) -> None:
        switch.job = submitted
        switch.pull("enough")
        seen.append(submitted.application_id)

    with contextlib.suppress(SubmissionRefused):  # the local cluster's, when it is killed before its master runs
        hook.submit(SubmissionRequest(job("sleep 600", timeouts={"grace": "1s"}), which), before_submit=killed)
    until(lambda: not hook.find(which), "the end of it")
    application = hook.application(seen[0])
    assert application is None or killed_by_airflow(application)
    assert not settled(lambda: processes_with(seen[0]))


def test_a_kill_of_what_is_never_submitted_gives_up(hook: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_switch, "SIGNAL_TIMEOUT", 0.5)
    switch = KillSwitch()
    switch.job = hook.job(hook.get_conn().new_application(), identity(hook, "control"))
    switch.pull("enough")
    assert not settled(lambda: [thread for thread in threading.enumerate() if thread.name == "tony-kill"])


@pytest.mark.long
def test_a_shorter_grace_is_heeded(hook: TonyHook, marker: Path) -> None:
    _, application_id = start(hook, "trap '' TERM; while :; do sleep 1; done", timeouts={"grace": "10m"})
    first = hook.control(application_id, "stop", {"reason": "slowly"})["ends_within"]
    assert 600 < first < 900
    assert hook.control(application_id, "stop", {"reason": "at once", "grace": 0})["ends_within"] < first - 300
    ended(hook, application_id)


def test_a_checkpoint_is_asked_of_the_user_process(hook: TonyHook, marker: Path) -> None:
    command = f"until test -e $TONY_CHECKPOINT_REQUEST; do sleep 0.1; done; echo asked > {marker}; sleep 600"
    _, application_id = start(hook, command)
    assert hook.control(application_id, "checkpoint", {"reason": "before the night"}) == {"newest": None}
    until(marker.exists, "the request")
    with pytest.raises(UnexpectedAnswer, match="reason"):
        hook.control(application_id, "stop", {})
    with pytest.raises(UnexpectedAnswer, match="no such page"):
        hook.control(application_id, "explode", {})
    hook.kill(application_id, "seen")
    ended(hook, application_id)


@pytest.mark.long
def test_what_has_no_master_cannot_be_asked(hook: TonyHook) -> None:
    with pytest.raises(MasterOutOfReach):
        hook.control(hook.get_conn().new_application(), "stop", {"reason": "r"})
    application_id = hook.submit(SubmissionRequest(job("true"), identity(hook, "control"))).application_id
    ended(hook, application_id)
    with pytest.raises(MasterOutOfReach):
        hook.control(application_id, "stop", {"reason": "r"})
    hook.job(application_id).limit(1.0, "nothing left to limit")
    hook.job("application_1_0001").limit(1.0, "never there")


def test_the_end_of_a_task_is_a_stop_with_grace(hook: TonyHook, marker: Path) -> None:
    which, application_id = polite(hook, marker)
    termination.end_job(hook.job(application_id, which), termination.KillOrder("a test"))
    application = hook.application(application_id)
    assert application is not None
    assert application.is_final
    assert killed_by_airflow(application)
    assert application.diagnostics == "Killed by Airflow: a test"
    assert marker.read_text() == "saved\n"
    assert not settled(lambda: processes_with(application_id))


def test_a_master_that_does_not_react_is_killed(hook: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page answers nothing: no grace then."""
    which, application_id = start(hook, "sleep 600", timeouts={"grace": "1s", "checkpoint": "1s"})
    monkeypatch.setattr("tony_provider.cluster.local.local_cluster._KILL_SLACK", 1.0)
    monkeypatch.setattr(termination, "CONTROL_SECONDS", 1.0)
    os.kill(master_of(application_id), signal.SIGSTOP)
    termination.end_job(hook.job(application_id, which), termination.KillOrder("a test"))
    application = ended(hook, application_id)
    assert application.state is ApplicationState.KILLED
    assert killed_by_airflow(application)
    assert not settled(lambda: processes_with(application_id))
    assert not hook.storage().exists(Layout(hook.layout.root).launch_dir(which, application_id))


@pytest.mark.long
def test_who_ends_in_no_time_of_its_own_is_killed_by_the_cluster(hook: TonyHook) -> None:
    _, application_id = start(hook, "sleep 600")
    hook.job(application_id).limit(3600.0, "much later")
    hook.job(application_id).limit(1.0, "out of time")
    hook.job(application_id).limit(3600.0, "never longer again")
    assert ended(hook, application_id).state is ApplicationState.KILLED
    assert not settled(lambda: processes_with(application_id))


# ---- on YARN -------------------------------------------------------------------------------------------------------


def through_proxy(cluster: HadoopCluster, application_id: str, user: str, path: str = "status") -> requests.Response:
    url = f"{cluster.rm_webapp[0]}/proxy/{application_id}/{path}"
    return requests.get(url, params={"user.name": user}, timeout=20)


def listening(pid: int) -> list[tuple[str, int]]:
    """IPv4 addresses that a process listens on."""
    inodes = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            host, port = fields[1].split(":")
            found.append((".".join(str(byte) for byte in bytes.fromhex(host)[::-1]), int(port, 16)))
    return found


def ask_directly(address: tuple[str, int], source: str) -> str:
    """The first line of the answer; empty when it is none of HTTP."""
    try:
        with socket.create_connection(address, timeout=20, source_address=(source, 0)) as connection:
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: am\r\nCookie: proxy-user=alice\r\n\r\n")
            first = connection.makefile("rb").readline().decode("latin-1")
    except OSError:
        return ""
    return first if first.startswith("HTTP/1.1 ") else ""


def test_the_proxy_alone_is_answered_and_only_the_owner_obeyed(
    yarn: TonyHook, hadoop: HadoopCluster, add_connection: AddConnection
) -> None:
    _, application_id = start(yarn, "sleep 600")
    application = yarn.application(application_id)
    assert application is not None
    assert application.tracking_url
    page = requests.get(f"{application.tracking_url}status", timeout=20)
    assert page.headers["Content-Type"].startswith("application/json")
    assert load_json(page.content, JobStatus).application_id == application_id
    assert through_proxy(hadoop, application_id, "bob").ok  # this cluster heeds no access lists
    addresses = listening(master_of(application_id))
    assert all(host.startswith("127.0.1.") for host, _ in addresses)  # its node's own
    for source, answers in (("127.0.0.1", "HTTP/1.1 403"), ("127.0.0.2", "HTTP/1.1 200")):
        [answer] = [answer for address in addresses if (answer := ask_directly(address, source))]
        assert answer.startswith(answers)
    add_yarn(add_connection, hadoop, login="bob")
    with TonyHook() as bobs, pytest.raises(ClusterAuthError, match=r"bob.* may not modify"):
        bobs.control(application_id, "stop", {"reason": "not mine"})
    yarn.kill(application_id, "seen")
    ended(yarn, application_id)


def test_an_order_to_stop_reaches_the_master_while_yarn_hangs(
    yarn: TonyHook, hadoop: HadoopCluster, marker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow ends the task's process 5 s after its signal, and its next try may be long in coming."""
    which, application_id = polite(yarn, marker)
    switch = KillSwitch()
    switch.job = yarn.job(application_id, which)
    hadoop.kill("resourcemanager-1", signal.SIGSTOP)
    try:
        with caplog.at_level("INFO"):
            switch.pull("marked as failed")
        assert f"Stopping {application_id}: marked as failed" in caplog.text
        owner = yarn.owners(which).newest().owner
        assert owner.stop is not None
        assert owner.stop.reason == "Killed by Airflow: marked as failed"
        until(lambda: marker.read_text() == "saved\n", "the end of the user process")
    finally:
        hadoop.kill("resourcemanager-1", signal.SIGCONT)
    assert ended(yarn, application_id).diagnostics == "Killed by Airflow: marked as failed"


def test_a_zombie_does_not_end_what_a_later_try_waits_for(
    hook: TonyHook, marker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    which, application_id = polite(hook, marker)
    hook.owners(which).begin(WaitingTry("try 1", 1))
    switch = KillSwitch().of("try 1")
    switch.job = hook.job(application_id, which)
    hook.owners(which).begin(WaitingTry("try 2", 2))
    switch.pull("its worker woke up and went down")
    assert f"{application_id} could not be ended: try 2 of its Airflow task waits for {application_id}" in caplog.text
    assert hook.owners(which).newest().owner.stop is None
    assert not hook.application(application_id).is_final  # type: ignore[union-attr]
    hook.kill(application_id, "enough")
    ended(hook, application_id)
