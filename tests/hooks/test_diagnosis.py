"""What is wrong with a connection, told apart: on real clusters, set up wrongly in every way."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.ports import free_ports
from tests.hadoop.settings import Settings
from tests.hooks.conftest import AddConnection, add_yarn
from tests.hooks.jobs import SECONDS
from tests.hooks.test_secure_yarn import become
from tests.waiting import until
from tony_provider.cluster.checks.doctor import ALL_SECONDS, HARDENING
from tony_provider.cluster.findings import Check, Finding, Report, Severity, await_late_checks, run_in_parallel
from tony_provider.cluster.yarn import credentials
from tony_provider.hooks.tony import TonyHook

HOST = socket.gethostname()


def report() -> Report:
    with TonyHook() as hook:
        return hook.diagnose()


def found(report: Report, what: str) -> Finding:
    [finding] = [each for each in report.findings if each.what.startswith(what)]
    return finding


def good_report() -> Report | None:
    return seen if (seen := report()).is_good else None


def good_report_with_standby() -> Report | None:
    """A report is also good while the standby is still starting."""
    seen = good_report()
    return seen if seen and any(each.detail == "standby" for each in seen.findings) else None


def outcomes(report: Report) -> dict[str, str]:
    return {finding.what.split(" ")[0]: finding.outcome.value for finding in report.findings}


@pytest.fixture
def black_hole() -> Iterator[str]:
    """It takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", free_ports(1)[0]), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_all_is_well(add_connection: AddConnection, hadoop: HadoopCluster) -> None:
    directory = f"/user/alice/{time.monotonic_ns()}"
    add_yarn(add_connection, hadoop, queue="ml", staging_dir=f"{directory}/deep")
    found_ = report()
    assert found_.is_good, str(found_)
    assert (found_.host, found_.user, found_.cluster) == (HOST, "alice", "yarn")
    assert {each.outcome for each in found_.findings if not each.what.startswith(HARDENING)} == {Severity.OK}
    assert found(found_, f"{HARDENING} hadoop.security.authentication").outcome is Severity.WARNING
    assert found(found_, f"{HARDENING} dfs.permissions.enabled").outcome is Severity.OK
    assert found(found_, f"{HARDENING} of {hadoop.fs_default}{directory}").outcome is Severity.SKIPPED
    assert f"active, Hadoop {hadoop.settings.version}" in found(found_, "ResourceManager ").detail
    assert found(found_, "DataNode ").detail == "reachable"
    assert "was written, read and removed" in found(found_, "Staging directory").detail
    with TonyHook() as hook:
        assert not hook.storage().exists(f"{hadoop.fs_default}{directory}")
        succeeded, message = hook.test_connection()
    assert succeeded
    assert message.startswith(f"Checked the yarn cluster from host {HOST} as alice:\n- ResourceManager ")


def test_every_kind_of_wrong_address_is_named(add_connection: AddConnection, hadoop: HadoopCluster) -> None:
    [closed] = free_ports(1)
    web, rpc = hadoop.webhdfs[0], f"http://{hadoop.state.scheduler[0]}"
    managers = {
        web: "this is a NameNode's web address",
        rpc: "this is a Hadoop RPC port, not a web address",
        f"http://127.0.0.1:{closed}": f"nothing listens on port {closed} of 127.0.0.1",
        hadoop.rm_webapp[0].replace("http://", "https://"): "it does not use TLS; use http://",
        "http://no-such-host.invalid:8088": "cannot resolve host 'no-such-host.invalid'",
        f"{hadoop.rm_webapp[0]}/gateway": "some other web server",
    }
    webhdfs = ",".join([hadoop.rm_webapp[0], f"http://{urlsplit(hadoop.fs_default).netloc}"])
    add_connection("tony_default", host=",".join(managers), login="alice", extra={"webhdfs": webhdfs})
    seen = report()
    for address, expected in managers.items():
        assert expected in str(found(seen, f"ResourceManager {address}:"[:-1])), address
    assert "this is a ResourceManager's web address" in found(seen, f"NameNode {hadoop.rm_webapp[0]}").detail
    assert "Hadoop RPC port" in found(seen, f"NameNode http://{urlsplit(hadoop.fs_default).netloc}").detail
    assert len(seen.problems) == len(managers) + 2
    for what in ("Applications over REST", "Queue", "Scheduler address", "Staging directory"):
        assert found(seen, what).outcome is Severity.SKIPPED
    with TonyHook() as hook:
        succeeded, message = hook.test_connection()
    assert not succeeded
    assert f"from host {HOST} as alice, and found {len(managers) + 2} problems:\n(1) ResourceManager" in message
    assert f"\n({len(managers) + 2}) NameNode" in message  # Airflow's pages make one line of them all


def test_one_that_is_missing_beside_an_active_one_is_a_warning(
    add_connection: AddConnection, hadoop: HadoopCluster
) -> None:
    [closed] = free_ports(1)
    hosts = f"{hadoop.rm_webapp[0]},http://127.0.0.1:{closed}"
    add_connection("tony_default", host=hosts, login="alice", extra={"webhdfs": hadoop.webhdfs[0]})
    seen = report()
    assert seen.is_good
    assert found(seen, f"ResourceManager http://127.0.0.1:{closed}").outcome is Severity.WARNING
    assert "- warning: ResourceManager" in str(seen)


def test_an_end_is_put_to_it_when_nobody_answers(add_connection: AddConnection, black_hole: str) -> None:
    assert ALL_SECONDS < 10.0
    add_connection("tony_default", host=f"{black_hole},{black_hole}/2", login="alice", extra={"webhdfs": black_hole})
    seen = report()
    for what in (f"ResourceManager {black_hole}/2", f"NameNode {black_hole}"):
        assert "it accepts connections, but did not answer within 3 s" in found(seen, what).detail


def test_a_check_that_hangs_or_breaks_is_one_finding_among_others() -> None:
    over = threading.Event()

    def breaks() -> list[Finding]:
        raise RuntimeError("broken")

    def hangs() -> list[Finding]:
        over.wait(SECONDS)
        return []

    first, second = run_in_parallel([Check("one", hangs), Check("two", breaks)], 0.2)
    assert (first.what, first.detail) == ("one", "no answer within 0.2 s")
    assert "broken" in second.detail
    over.set()


def test_a_check_that_was_cut_off_may_tidy_up() -> None:
    """Its thread would end with the process, and leave what it has written for a try."""
    go_on, tidied = threading.Event(), threading.Event()

    def tries() -> Iterator[Finding]:
        go_on.wait(SECONDS)
        tidied.set()
        yield from ()

    [finding] = run_in_parallel([Check("slow", tries)], 0.05)
    assert finding.outcome is Severity.PROBLEM
    go_on.set()
    await_late_checks(SECONDS)
    assert tidied.is_set()


@pytest.mark.parametrize(
    ("extra", "what", "expected"),
    [
        ({"queue": "nowhere"}, "Queue nowhere", "there is no queue 'nowhere'; this cluster has "),
        ({"staging_dir": "/user/bob/.tony"}, "Staging directory", "Permission denied"),
        ({"staging_dir": "/no/such/place"}, "Staging directory", "Permission denied"),
        ({"runtime_archive": "/nowhere/runtime.zip"}, "Runtime /nowhere", "it is not on this host; build one"),
        ({"runtime_archive": "hdfs:///nowhere/runtime.zip"}, "Runtime hdfs:///nowhere", "it does not exist; build one"),
    ],
)
def test_what_is_wrong_within_a_cluster_that_answers(
    add_connection: AddConnection, hadoop: HadoopCluster, extra: dict[str, str], what: str, expected: str
) -> None:
    if extra.get("runtime_archive", "").startswith("hdfs://"):
        extra = {"runtime_archive": extra["runtime_archive"].replace("hdfs://", hadoop.fs_default)}
        what = what.replace("hdfs://", hadoop.fs_default)
    add_yarn(add_connection, hadoop, **extra)
    seen = report()
    assert expected in str(found(seen, what))
    assert [finding.what for finding in seen.problems] == [found(seen, what).what]


def test_a_connection_that_is_not_even_worth_a_look(airflow_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_TONY_DEFAULT", raising=False)
    with TonyHook("tony_missing") as hook:
        succeeded, message = hook.test_connection()
    assert not succeeded
    assert message.startswith(f"Checked from host {HOST}: there is no connection 'tony_missing'")


def test_the_local_backend(local: TonyHook, add_connection: AddConnection, tmp_path: Path) -> None:
    seen = report()
    assert seen.is_good, str(seen)
    assert outcomes(seen) == {"Staging": "ok", "Limits": "ok", "Runtime": "ok", "Python": "ok"}
    assert not (tmp_path / "tony").exists()  # nothing is left
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    extra = {"backend": "local", "staging_dir": str(in_the_way / "tony"), "python": "/no/such/python"}
    add_connection("tony_default", extra=extra)
    seen = report()
    assert {finding.what.split(" ")[0] for finding in seen.problems} == {"Staging", "Python"}


@pytest.mark.long
def test_a_cluster_that_keeps_to_itself(add_connection: AddConnection, start_hadoop: StartHadoop) -> None:
    """No submissions over REST, its configuration hidden, and a queue for somebody else."""
    capacity = "yarn.scheduler.capacity.root"
    cluster = start_hadoop(
        Settings(
            nodemanagers=1,
            properties={
                "core-site": {"hadoop.security.authorization": "true"},
                "yarn-site": {"yarn.webapp.enable-rest-app-submissions": "false", "yarn.acl.enable": "true"},
                "capacity-scheduler": {
                    f"{capacity}.acl_submit_applications": " ",
                    f"{capacity}.acl_administer_queue": " ",
                    f"{capacity}.ml.acl_submit_applications": "bob",
                    f"{capacity}.default.acl_submit_applications": "bob trainers",
                },
            },
        )
    )
    try:
        add_yarn(add_connection, cluster, queue="ml")
        seen = report()
        assert "accepts no applications over REST" in found(seen, "Applications over REST").detail
        assert "does not allow alice to submit, only bob; request access" in str(found(seen, "Queue ml"))
        assert len(seen.problems) == 2
        add_yarn(add_connection, cluster, queue="default")
        queue = found(report(), "Queue default")
        assert queue.outcome is Severity.WARNING
        assert "accepts the groups trainers; only the cluster knows alice's groups" in queue.detail
        add_yarn(add_connection, cluster, login="bob", queue="ml")
        assert found(report(), "Queue ml").detail == "accepts applications of bob"
        cluster.kill("datanode-1")
        gone = found(report(), "DataNode ")
        assert gone.outcome is Severity.PROBLEM
        assert "this host must resolve the DataNodes' names and reach their HTTP ports" in str(gone)
    finally:
        cluster.stop()


def test_kerberos_is_told_apart_from_all_else(
    add_connection: AddConnection,
    secure_hadoop: HadoopCluster,
    hadoop: HadoopCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    become(monkeypatch, secure_hadoop, "alice")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True)
    seen = until(good_report_with_standby, lambda: f"a cluster with its standby: {report()}", SECONDS)
    assert seen.user == "alice"
    assert found(seen, "Kerberos ticket").detail.startswith("alice@")
    assert [each.outcome for each in seen.findings if each.detail == "standby"] == [Severity.OK], seen.findings
    assert "YARN's proxy contacts application masters over https" in found(seen, "Masters' pages").detail
    secured = [each for each in seen.findings if each.what.startswith("TLS of ")]
    assert len(secured) == len(secure_hadoop.rm_webapp) + len(secure_hadoop.webhdfs)
    assert {each.outcome for each in secured} == {Severity.OK}, secured
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True, nodes_ca_file=None)
    unknown = [each for each in report().findings if "the nodes may have no other authorities" in each.detail]
    assert [each.what for each in unknown] == [f"TLS of {address}" for address in secure_hadoop.webhdfs]

    add_yarn(add_connection, secure_hadoop, login="bob", kerberos=True)
    assert "while the connection's user is bob" in found(report(), "Kerberos ticket").detail

    # The cluster asks for it, the connection does not; and the other way round.
    add_yarn(add_connection, secure_hadoop, login="alice", kerberos=False)
    seen = report()
    asks = "it requires Kerberos, but the connection does not; set `kerberos` to true"
    assert asks in str(found(seen, "ResourceManager "))
    assert all(asks in str(each) for each in seen.findings if each.what.startswith("NameNode "))
    add_yarn(add_connection, hadoop, login=None, kerberos=True)
    assert "it does not use Kerberos, but the connection does" in found(report(), "NameNode ").detail

    # No ticket, and one that has expired.
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path}/none.keytab")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True)
    seen = report()
    assert "there is no Kerberos ticket" in found(seen, "Kerberos ticket").detail
    assert "there is no Kerberos ticket" in str(found(seen, "ResourceManager "))
    assert seen.user == ""


def test_a_ticket_that_ends_soon_or_has_ended_mocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket's life is counted in minutes at least."""
    from tony_provider.cluster.checks import daemons as checks

    ticket = credentials.Ticket("alice@REALM", 30)
    monkeypatch.setattr(checks, "ticket", lambda: ticket)
    [finding] = checks.check_ticket(None, [])
    assert (finding.outcome, finding.detail) == (Severity.WARNING, "alice@REALM, valid for another 0 min")
    monkeypatch.setattr(checks, "ticket", lambda: attrs.evolve(ticket, seconds=0))
    [finding] = checks.check_ticket(None, [])
    assert (finding.outcome, finding.detail) == (Severity.PROBLEM, "the ticket of alice@REALM has expired")


def test_clocks_that_differ_mocked(add_connection: AddConnection, hadoop: HadoopCluster) -> None:
    """Nobody changes this machine's clock."""
    add_yarn(add_connection, hadoop)
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tony_provider.cluster.checks.daemons.time.time", lambda: real() - 3600)
        clocks = found(report(), "Clocks")
    assert clocks.outcome is Severity.PROBLEM
    assert "s ahead of this host's; synchronize both clocks by NTP" in str(clocks)


def test_a_report_is_json(local: TonyHook) -> None:
    plain = attrs.asdict(report())
    assert json.loads(json.dumps(plain))["host"] == HOST
