"""The real clusters that other tests stand on."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hadoop.client import HttpError
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings

DEADLINE_SECONDS = 60


def wait_for(what: Callable[[], bool], meaning: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not what():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {DEADLINE_SECONDS} s: {meaning}")
        time.sleep(0.1)


def submit(cluster: HadoopCluster, command: str) -> str:
    """An application of alice's whose ApplicationMaster is this command."""
    alice, apps = cluster.client("alice"), f"{cluster.rm_webapp[0]}/ws/v1/cluster/apps"
    application = json.loads(alice.request("POST", f"{apps}/new-application"))["application-id"]
    asked = {
        "application-id": application,
        "application-name": "sleeper",
        "am-container-spec": {"commands": {"command": command}},
        "resource": {"memory": 64, "vCores": 1},
        "max-app-attempts": 1,
    }
    alice.request("POST", apps, json.dumps(asked).encode(), "application/json")
    return str(application)


def test_users_read_and_write_their_own_files(hadoop: HadoopCluster) -> None:
    alice, base = hadoop.client("alice"), f"{hadoop.webhdfs[0]}/webhdfs/v1/user/alice/cluster-test"
    alice.request("PUT", base, b"some bytes", query={"op": "CREATE", "overwrite": "true"})
    try:
        assert alice.request("GET", base, query={"op": "OPEN"}) == b"some bytes"
        assert alice.get_json(base, op="GETFILESTATUS")["FileStatus"]["owner"] == "alice"
        with pytest.raises(HttpError, match="AccessControlException"):
            hadoop.client("bob").request("GET", base, query={"op": "OPEN"})
    finally:
        alice.request("DELETE", base, query={"op": "DELETE"})


def test_a_job_has_two_nodes_and_the_queues_to_run_in(hadoop: HadoopCluster) -> None:
    nodes = hadoop.services.nodes()
    assert {node["nodeHostName"] for node in nodes} == {"127.0.1.1", "127.0.1.2"}
    assert [node["state"] for node in nodes] == ["RUNNING", "RUNNING"]
    scheduler = hadoop.client("alice").get_json(f"{hadoop.rm_webapp[0]}/ws/v1/cluster/scheduler")
    queues = scheduler["scheduler"]["schedulerInfo"]["queues"]["queue"]
    assert {queue["queueName"] for queue in queues} == {"default", "ml", "small"}


def test_a_running_cluster_is_found_by_its_folder(hadoop: HadoopCluster) -> None:
    found = HadoopCluster.load(hadoop.root)
    assert found.running()
    assert found.rm_webapp == hadoop.rm_webapp
    assert found.start() is False
    with pytest.raises(ClusterError, match="stop that first"):
        HadoopCluster(hadoop.root, Settings(nodemanagers=7)).start()


def test_the_command_line_describes_the_cluster(hadoop: HadoopCluster) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.hadoop", "status", "--root", str(hadoop.root)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    ).stdout
    assert hadoop.rm_webapp[0] in said
    assert "nodemanager-2" in said


def test_links_to_an_application_lead_to_the_resourcemanager(hadoop: HadoopCluster) -> None:
    application = submit(hadoop, "exec true")
    alice, url = hadoop.client("alice"), f"{hadoop.rm_webapp[0]}/ws/v1/cluster/apps/{application}"
    wait_for(
        lambda: alice.get_json(url)["app"]["state"] == "FAILED", "an application that registers nothing has failed"
    )
    # Whatever this machine is called.
    assert alice.get_json(url)["app"]["trackingUrl"].startswith(f"{hadoop.rm_webapp[0]}/cluster/app/")


@pytest.mark.long
def test_stopping_leaves_no_process_not_even_of_a_node_that_was_killed(start_hadoop: StartHadoop) -> None:
    cluster = start_hadoop(Settings(nodemanagers=1))
    application = submit(cluster, "exec sleep 600")
    wait_for(lambda: len(cluster.containers()) > 0, "a container runs")
    assert cluster.container_logs(application)
    inherited = Path(f"/proc/{cluster.containers()[0].pid}/environ").read_bytes()
    assert b"HADOOP_CONF_DIR" not in inherited
    assert b"VIRTUAL_ENV" not in inherited

    cluster.kill("nodemanager-1")
    survivors = cluster.containers()
    assert survivors, "YARN's containers live on without their NodeManager"
    assert not cluster.running()

    daemons, port = list(cluster.state.processes.values()), cluster.state.addresses.namenodes[0].rpc.rpartition(":")[2]
    cluster.stop()
    assert not [process for process in daemons + survivors if process.alive()]
    assert not cluster.root.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)), timeout=5)


@pytest.mark.long
def test_daemons_die_and_come_back_with_what_they_knew(start_hadoop: StartHadoop) -> None:
    cluster = start_hadoop(Settings(nodemanagers=1))
    application = submit(cluster, "exec sleep 600")
    wait_for(lambda: len(cluster.containers()) > 0, "a container runs")
    for daemon in ("resourcemanager-1", "namenode", "datanode-1"):
        cluster.kill(daemon)
        cluster.restart(daemon)
    app = cluster.client("alice").get_json(f"{cluster.rm_webapp[0]}/ws/v1/cluster/apps/{application}")["app"]
    assert app["state"] == "ACCEPTED"
    assert cluster.containers()
    cluster.stop()


@pytest.mark.long
def test_a_daemon_that_cannot_start_is_named_with_its_log(start_hadoop: StartHadoop, tmp_path: Path) -> None:
    wrong = Settings(
        nodemanagers=1, properties={"yarn-site": {"yarn.resourcemanager.scheduler.class": "no.such.Class"}}
    )
    cluster = HadoopCluster(tmp_path / "cluster", wrong)
    with pytest.raises(ClusterError, match=r"resourcemanager-1 ended[\s\S]*no\.such\.Class"):
        cluster.start()
    assert cluster.log("resourcemanager-1").is_file()
    assert not HadoopCluster.load(cluster.root).running()
    cluster.stop()


def test_a_folder_that_is_not_a_cluster_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for act in (HadoopCluster(tmp_path).start, HadoopCluster(tmp_path).stop):
        with pytest.raises(ClusterError, match=r"thesis\.txt"):
            act()
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.long
def test_a_pair_of_resourcemanagers_fails_over(start_hadoop: StartHadoop) -> None:
    cluster = start_hadoop(Settings(resourcemanagers=2, nodemanagers=1))
    assert cluster.services.active_resourcemanager() == cluster.rm_webapp[0]
    cluster.kill("resourcemanager-1")
    cluster.activate(2)
    cluster.wait_ready()
    assert cluster.services.active_resourcemanager() == cluster.rm_webapp[1]
    cluster.restart("resourcemanager-1")
    assert cluster.running()
    cluster.stop()


@pytest.mark.long
def test_kerberos_tells_users_apart(secure_hadoop: HadoopCluster) -> None:
    alice, home = secure_hadoop.client("alice"), f"{secure_hadoop.webhdfs[0]}/webhdfs/v1/user/alice"
    alice.request("PUT", f"{home}/secret", b"for alice", query={"op": "CREATE", "overwrite": "true"})
    assert alice.request("GET", f"{home}/secret", query={"op": "OPEN"}) == b"for alice"
    with pytest.raises(HttpError, match="AccessControlException"):
        secure_hadoop.client("bob").request("GET", f"{home}/secret", query={"op": "OPEN"})


def test_kerberos_is_required_by_the_resourcemanager(secure_hadoop: HadoopCluster) -> None:
    apps = f"{secure_hadoop.rm_webapp[0]}/ws/v1/cluster/apps/new-application"
    said = subprocess.run(
        [
            "curl",
            "--silent",
            "--noproxy",
            "*",
            "--cacert",
            str(secure_hadoop.layout.ca_file),
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
            "-X",
            "POST",
            apps,
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    ).stdout
    assert said == "401"


@pytest.mark.long
def test_a_secure_cluster_runs_applications(secure_hadoop: HadoopCluster) -> None:
    application = submit(secure_hadoop, "exec sleep 600")
    wait_for(lambda: len(secure_hadoop.containers()) > 0, "a container runs")
    state = f"{secure_hadoop.rm_webapp[0]}/ws/v1/cluster/apps/{application}/state"
    with pytest.raises(HttpError):
        secure_hadoop.client("bob").request("PUT", state, b'{"state": "KILLED"}', "application/json")
    secure_hadoop.client("alice").request("PUT", state, b'{"state": "KILLED"}', "application/json")
    wait_for(lambda: not secure_hadoop.containers(), "the container is gone")
