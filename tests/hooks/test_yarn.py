"""The hook on a real YARN, submitting as an ordinary user."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.config import RATE
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.ports import free_ports
from tests.hadoop.settings import WEB_LOOPBACK, Settings
from tests.hooks.conftest import AddConnection, add_yarn
from tests.hooks.jobs import SECONDS, below, ended, identity, job, running
from tests.waiting import until
from tony_provider.cluster.errors import (
    ClusterUnreachable,
    JobRejected,
    JobTooLarge,
    MasterOutOfReach,
    RestSubmissionDisabled,
    SourceMissing,
    StagingFailed,
    UnexpectedAnswer,
)
from tony_provider.cluster.interface import ApplicationFilter, ApplicationState
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.application import YarnAccess
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.status import FinalStatus, JobState
from tony_provider.runtime.storage import uris


def application_info(cluster: HadoopCluster, application_id: str) -> dict[str, Any]:
    answer = cluster.client("alice").get_json(f"{cluster.rm_webapp[0]}/ws/v1/cluster/apps/{application_id}")
    info: dict[str, Any] = answer["app"]
    return info


def test_a_job_from_submission_to_its_end(yarn: TonyHook, hadoop: HadoopCluster, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "hello.sh").write_text('echo "hello from $TONY_TASK_INDEX"; test "$API_KEY" = open-sesame\n')
    which = identity(yarn)
    spec = job(
        "sh src/hello.sh",
        {"instances": 2},
        files=["src"],
        tags=["Nightly"],
        queue="ml",
        priority=3,
        secrets=["API_KEY"],
        timeouts={"lifetime": "10m"},
    )
    application_id = yarn.submit(
        SubmissionRequest(spec, which, secrets={"API_KEY": "open-sesame"}, search_path=[tmp_path])
    ).application_id
    assert [application.id for application in yarn.find(which)] == [application_id]
    application = ended(yarn, application_id)
    assert (application.state, application.final_status) == (ApplicationState.FINISHED, FinalStatus.SUCCEEDED)
    assert (application.user, application.name) == ("alice", "small")
    assert application.queue in ("ml", "root.ml")
    assert sorted(application.tags) == sorted([which.tag, "nightly"])
    info = application_info(hadoop, application_id)
    assert info["applicationType"] == "TONY"
    [lifetime] = info["timeouts"]["timeout"]
    assert lifetime["type"] == "LIFETIME"
    assert lifetime["expiryTime"] != "UNLIMITED"
    status = yarn.job_status(which, application_id)
    assert status is not None
    assert status.state is JobState.SUCCEEDED
    yarn.job(application_id, which).clean_up()
    left = {uri.rsplit("/", 1)[1] for uri in below(yarn, yarn.job(application_id, which).directory)}
    assert "tony-application.json" not in left
    assert "result.json" in left
    assert "registered" in yarn.job(application_id).master_log()
    assert "registered" not in yarn.job(application_id).master_log(20)
    assert yarn.find(which) == []


def test_a_live_application_is_killed_with_its_reason(yarn: TonyHook) -> None:
    which = identity(yarn)
    application_id = yarn.submit(SubmissionRequest(job("sleep 600"), which)).application_id
    running(yarn, which, application_id)
    yarn.kill(application_id, "killed by a test")
    application = ended(yarn, application_id)
    assert (application.state, application.final_status) == (ApplicationState.KILLED, FinalStatus.KILLED)
    assert "killed by a test" in application.diagnostics
    yarn.kill(application_id, "again")
    yarn.job(application_id, which).clean_up()
    assert not yarn.storage().exists(uris.join(yarn.job(application_id, which).directory, contract.LAUNCH_DIR))


def test_our_live_applications_are_listed_by_one_request(
    yarn: TonyHook, add_connection: AddConnection, hadoop: HadoopCluster
) -> None:
    first = yarn.submit(SubmissionRequest(job("sleep 600"), identity(yarn))).application_id
    second = yarn.submit(SubmissionRequest(job("sleep 600", queue="ml"), identity(yarn, "another"))).application_id
    add_yarn(add_connection, hadoop, login="bob", staging_dir=f"/user/bob/{first}")
    with TonyHook() as bobs:
        third = bobs.submit(SubmissionRequest(job("sleep 600"), identity(bobs, "bobs"))).application_id
        # The cluster is shared: there may be others.
        mine = {first, second, third}
        assert [each.id for each in bobs.get_conn().live() if each.id in mine] == [third]
        with requests_sent() as sent:
            found = yarn.get_conn().live()
        assert len(sent) == 1
        assert [each.id for each in found if each.id in mine] == [second, first]
        assert all(each.user == "alice" and not each.is_final for each in found)
        everybodys = yarn.get_conn().applications(ApplicationFilter(live=True))
        assert mine <= {each.id for each in everybodys}
        bobs.kill(third, "enough")
        bobs.storage().remove(bobs.layout.root, recursive=True)
    for application_id in (first, second):
        yarn.kill(application_id, "enough")
        ended(yarn, application_id)
    assert not mine & {each.id for each in yarn.get_conn().live()}
    past = yarn.get_conn().applications(ApplicationFilter(live=False, user="alice"))
    assert [each.id for each in past if each.id in mine] == [second, first]


def test_a_neighbours_application_with_our_tags_is_none_of_ours(
    yarn: TonyHook, add_connection: AddConnection, hadoop: HadoopCluster
) -> None:
    """Tags are computed from names, which are no secret: seen, a neighbour's application kept ours from starting."""
    which = identity(yarn, "squatted")
    add_yarn(add_connection, hadoop, login="bob", staging_dir="/user/bob/squatting")
    with TonyHook() as bobs:
        squatter = bobs.submit(SubmissionRequest(job("sleep 600", tags=["nightly-squatted"]), which)).application_id
        assert [each.id for each in bobs.find(which)] == [squatter]
        assert yarn.find(which) == []
        assert yarn.application_ref(tag=which.tag) is None
        assert yarn.application_ref(tag="nightly-squatted") is None
        named = yarn.application_ref(application_id=squatter)
        assert named is not None
        assert named.identity is None
        mine = yarn.submit(SubmissionRequest(job(tags=["nightly-squatted"]), which)).application_id
        assert ended(yarn, mine).final_status is FinalStatus.SUCCEEDED
        for tag in (which.tag, "nightly-squatted"):
            found = yarn.application_ref(tag=tag)
            assert found is not None
            assert (found.application_id, found.identity) == (mine, which)
        assert [each.id for each in bobs.find(which)] == [squatter]
        bobs.kill(squatter, "enough")
        bobs.storage().remove(bobs.layout.root, recursive=True)


@contextlib.contextmanager
def requests_sent() -> Iterator[list[str]]:
    """The addresses that this process asks meanwhile."""
    sent: list[str] = []
    original = requests.Session.send

    def send(session: requests.Session, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        sent.append(str(request.url))
        return original(session, request, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.Session, "send", send)
        yield sent


def test_an_application_that_the_cluster_does_not_know(yarn: TonyHook) -> None:
    assert yarn.application("application_1_0001") is None
    assert yarn.job("application_1_0001").master_log() == ""
    yarn.kill("application_1_0001", "nothing to kill")
    assert yarn.job_status(identity(yarn), "application_1_0001") is None


def test_a_second_submission_uploads_nothing(yarn: TonyHook, hadoop: HadoopCluster, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("true\n")
    spec = job("sh train.sh", files=["train.sh"])
    first = yarn.submit(SubmissionRequest(spec, identity(yarn), search_path=[tmp_path])).application_id
    cache = uris.join(yarn.layout.root, "cache")
    before = below(yarn, cache)
    assert len(before) == 2  # the runtime and the script
    second = yarn.submit(SubmissionRequest(spec, identity(yarn, "second"), search_path=[tmp_path])).application_id
    assert below(yarn, cache) == before
    listed = hadoop.client("alice").get_json(
        f"{hadoop.webhdfs[0]}/webhdfs/v1{uris.parse(cache).path}", op="GETCONTENTSUMMARY"
    )
    assert listed["ContentSummary"]["fileCount"] == 2  # no temporary file either
    for application_id in (first, second):
        yarn.kill(application_id, "seen enough")


def test_many_jobs_submitted_at_once_share_what_they_stage(yarn: TonyHook, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("true\n")
    start = threading.Barrier(4)

    def submit(number: int) -> str:
        with TonyHook() as hook:
            hook.get_conn()
            start.wait(60)
            which = identity(hook, f"train-{number}")
            return hook.submit(
                SubmissionRequest(job("sh train.sh", files=["train.sh"]), which, search_path=[tmp_path])
            ).application_id

    with ThreadPoolExecutor(4) as pool:
        submitted = list(pool.map(submit, range(4)))
    assert len(set(submitted)) == 4
    assert len(below(yarn, uris.join(yarn.layout.root, "cache"))) == 2
    for application_id in submitted:
        yarn.kill(application_id, "seen enough")


@pytest.mark.parametrize(
    ("fields", "task", "expected"),
    [
        ({"queue": "nope"}, {}, r"queue: there is no queue 'nope'; this cluster has .*ml"),
        ({"queue": "root"}, {}, "queue: 'root' is a parent queue"),
        ({"node_label": "nope"}, {}, "node_label: there is no node label 'nope'; this cluster has gpu"),
        ({}, {"memory": "1TiB"}, r"tasks.worker.memory: 1048576 MiB in one container is more than the \d+ MiB"),
        ({}, {"vcores": 1000}, r"tasks.worker.vcores: 1000 vcores in one container is more than the \d+ vcores"),
        ({}, {"gpus": 8}, r"tasks.worker.gpus: 8 GPUs in one container is more than the 2 GPUs"),
        ({}, {"resources": {"acme.com/fpga": 1}}, "this cluster has no resource 'acme.com/fpga'"),
        ({}, {"resources": {RATE: "1500Mi"}}, f"{RATE}.*: this cluster counts it in whole Gi, .* down; write 2Gi"),
        ({"am": {"memory": "1TiB"}}, {}, "am.memory: 1048576 MiB in one container"),
    ],
)
def test_a_job_that_can_never_run_is_refused_before_anything_is_staged(
    yarn: TonyHook, fields: dict[str, Any], task: dict[str, Any], expected: str
) -> None:
    which = identity(yarn)
    with pytest.raises(JobRejected, match=expected) as raised:
        yarn.submit(SubmissionRequest(job("true", task, **fields), which))
    assert raised.value.permanent
    assert not yarn.storage().exists(yarn.layout.root)
    assert yarn.find(which) == []


def test_a_gang_that_the_cluster_could_never_hold_is_refused_with_the_figures(
    yarn: TonyHook, add_connection: AddConnection, hadoop: HadoopCluster, caplog: pytest.LogCaptureFixture
) -> None:
    which = identity(yarn)
    with pytest.raises(JobTooLarge, match=r"is \d+ MiB; the queue gets at most \d+ MiB, 10 % of the nodes"):
        yarn.submit(SubmissionRequest(job("true", {"memory": "1GiB"}, queue="small"), which))
    assert not yarn.storage().exists(yarn.layout.root)
    count, memory = hadoop.settings.nodemanagers + 1, hadoop.settings.node_memory_mb
    add_yarn(add_connection, hadoop, autoscaling=True)
    with TonyHook() as hook, caplog.at_level(logging.WARNING):
        hook.check(job("true", {"instances": count, "memory": f"{memory}MiB"}))
    told = rf"\(its nodes change\): .*{count} x {memory} MiB \(tasks.worker\) is \d+ MiB; the nodes have \d+ MiB"
    assert re.search(told, caplog.text)


def test_missing_files_are_named_before_anything_is_staged(yarn: TonyHook, tmp_path: Path) -> None:
    spec = job(files=["gone.py"], archives=["hdfs:///user/alice/gone.zip"], python_env="hdfs:///envs/gone.tar.gz")
    with pytest.raises(SourceMissing) as raised:
        yarn.submit(SubmissionRequest(spec, identity(yarn), search_path=[tmp_path]))
    text = str(raised.value)
    assert f"files[0]: 'gone.py' does not exist; searched {tmp_path}/gone.py" in text
    assert "archives[0]: hdfs:///user/alice/gone.zip does not exist" in text
    assert "python_env: hdfs:///envs/gone.tar.gz does not exist" in text
    assert not yarn.storage().exists(yarn.layout.root)


def test_files_of_one_content_are_all_there(yarn: TonyHook, tmp_path: Path) -> None:
    # YARN itself would link only one of several local resources that are one file.
    for name in ("a/__init__.py", "a/b/__init__.py", "c/__init__.py"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).touch()
    command = "test -f src/a/__init__.py && test -f src/a/b/__init__.py && test -f src/c/__init__.py"
    application_id = yarn.submit(
        SubmissionRequest(job(command, files=["src"]), identity(yarn), search_path=[tmp_path])
    ).application_id
    application = ended(yarn, application_id)
    assert application.final_status is FinalStatus.SUCCEEDED, application.diagnostics


def test_files_on_hdfs_are_used_where_they_are(yarn: TonyHook) -> None:
    store = uris.join(yarn.layout.root, "mine")
    yarn.storage().write(uris.join(store, "deep", "check.sh"), b"grep -q data src/data.txt && test -f renamed.txt\n")
    yarn.storage().write(uris.join(store, "data.txt"), b"data\n")
    yarn.storage().write(uris.join(yarn.layout.root, "other.txt"), b"other\n")
    files = [f"{store}::src", f"{yarn.layout.root}/other.txt::renamed.txt"]
    application_id = yarn.submit(
        SubmissionRequest(job("sh src/deep/check.sh", files=files), identity(yarn))
    ).application_id
    application = ended(yarn, application_id)
    assert application.final_status is FinalStatus.SUCCEEDED, application.diagnostics
    assert len(below(yarn, uris.join(yarn.layout.root, "cache"))) == 1  # the runtime only


def test_a_staging_directory_that_may_not_be_written(
    add_connection: AddConnection, hadoop: HadoopCluster, airflow_db: None
) -> None:
    add_yarn(add_connection, hadoop, staging_dir="/user/bob/.tony")
    with TonyHook() as hook:
        which = identity(hook)
        with pytest.raises(StagingFailed, match=r"/user/bob.*Permission denied.*check the owner and permissions"):
            hook.submit(SubmissionRequest(job(), which))
        assert hook.find(which) == []


def test_a_staging_directory_that_is_full(yarn: TonyHook, hadoop: HadoopCluster, tmp_path: Path) -> None:
    yarn.storage().make_directories(yarn.layout.root)
    hadoop.services.set_quota(yarn.layout.root, storagespacequota=1 << 20)  # less than one block
    which = identity(yarn)
    with pytest.raises(StagingFailed, match="quota"):
        yarn.submit(SubmissionRequest(job(), which))
    assert below(yarn, yarn.layout.root) == {}
    assert not yarn.storage().exists(yarn.layout.job_dir(which))
    assert yarn.find(which) == []


def test_no_resource_manager_that_answers(add_connection: AddConnection, hadoop: HadoopCluster) -> None:
    [port] = free_ports(1)
    add_connection(
        "tony_default",
        host=f"http://127.0.0.1:{port}",
        login="alice",
        extra={"webhdfs": hadoop.webhdfs[0], "timeout": 20},
    )
    with TonyHook() as hook:
        with pytest.raises(ClusterUnreachable, match=rf"127.0.0.1:{port}: .*refused.*check the addresses"):
            hook.submit(SubmissionRequest(job(), identity(hook)))
        succeeded, message = hook.test_connection()
        assert not succeeded
        assert f"nothing listens on port {port}" in message


def test_an_address_that_is_no_resource_managers(add_connection: AddConnection, hadoop: HadoopCluster) -> None:
    add_connection(
        "tony_default",
        host=hadoop.webhdfs[0],
        login="alice",
        extra={"webhdfs": hadoop.webhdfs[0], "timeout": 20},
    )
    with TonyHook() as hook, pytest.raises(UnexpectedAnswer, match="is not a ResourceManager's web address"):
        hook.submit(SubmissionRequest(job(), identity(hook)))


def test_the_connections_queue_is_tested(add_connection: AddConnection, hadoop: HadoopCluster) -> None:
    add_yarn(add_connection, hadoop)
    with TonyHook() as hook:
        assert hook.test_connection()[0]
    add_yarn(add_connection, hadoop, queue="nowhere")
    with TonyHook() as hook:
        succeeded, message = hook.test_connection()
    assert not succeeded
    assert "Queue nowhere: there is no queue 'nowhere'; this cluster has " in message


def test_a_proxy_of_the_environment_is_not_used(yarn: TonyHook, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert yarn.test_connection()[0]


def test_a_proxy_user_owns_the_job(add_connection: AddConnection, hadoop: HadoopCluster) -> None:
    add_yarn(add_connection, hadoop, login="airflow")
    with TonyHook(proxy_user="bob") as hook:
        assert hook.layout.root == f"{hadoop.fs_default}/user/bob/.tony"
        application_id = hook.submit(SubmissionRequest(job(), identity(hook))).application_id
        assert ended(hook, application_id).user == "bob"
        assert hook.storage().status(hook.layout.root).owner == "bob"


@pytest.mark.long
def test_a_cluster_that_takes_no_applications_over_rest(
    start_hadoop: StartHadoop, add_connection: AddConnection
) -> None:
    properties = {"yarn-site": {"yarn.webapp.enable-rest-app-submissions": "false"}}
    cluster = start_hadoop(Settings(nodemanagers=1, properties=properties))
    try:
        add_yarn(add_connection, cluster)
        with TonyHook() as hook:
            with pytest.raises(RestSubmissionDisabled, match="enable-rest-app-submissions is false"):
                hook.submit(SubmissionRequest(job(), identity(hook)))
            assert not hook.storage().exists(hook.layout.root)
    finally:
        cluster.stop()


def _stopped(hook: TonyHook, application_id: str) -> bool:
    try:
        return bool(hook.control(application_id, "stop", {"reason": "seen enough"}))
    except MasterOutOfReach:
        return False


@pytest.mark.long  # a row of the faults has its own pair, too: resourcemanager-failover
def test_failover_between_resource_managers(start_hadoop: StartHadoop, add_connection: AddConnection) -> None:
    cluster = start_hadoop(Settings(resourcemanagers=2, nodemanagers=1))
    try:
        add_yarn(add_connection, cluster)
        with TonyHook() as hook:
            access = hook.get_conn().access("")
            assert isinstance(access, YarnAccess)
            assert len(set(access.scheduler)) == 2
            assert access.proxies == list(WEB_LOOPBACK)
            which = identity(hook)
            application_id = hook.submit(SubmissionRequest(job("sleep 600"), which)).application_id
            running(hook, which, application_id)
            cluster.kill("resourcemanager-1")
            threading.Thread(target=cluster.activate, args=(2,)).start()
            # Asked while there is no active one: it waits for the other to become so.
            found = until(lambda: hook.find(which), "the application, known to the other", SECONDS)
            assert found[0].id == application_id
            # Its master has to have registered again before the other's proxy knows the way.
            until(lambda: _stopped(hook, application_id), "the master, asked through the other's proxy", SECONDS)
            assert "seen enough" in ended(hook, application_id).diagnostics
    finally:
        cluster.stop()


def test_what_the_nodes_are_told_of_the_store_and_the_cluster(yarn: TonyHook, hadoop: HadoopCluster) -> None:
    which = identity(yarn)
    application_id = yarn.submit(SubmissionRequest(job("sleep 600"), which, labels={"dag": "tests"})).application_id
    [path] = [uri for uri in below(yarn, yarn.layout.root) if uri.endswith("/tony-application.json")]
    description = json.loads(yarn.storage().open_read(path).read())
    yarn.kill(application_id, "seen enough")
    assert description["application_id"] == application_id
    webhdfs = description["webhdfs"]
    assert webhdfs["addresses"] == hadoop.webhdfs
    assert (webhdfs["user"], webhdfs["proxy_user"], webhdfs["ca_file"]) == ("alice", None, None)
    assert len(description["yarn"]["scheduler"]) == 1
    assert description["local"] is None
    assert description["labels"] == {"dag": "tests"}
    assert description["application_dir"] == yarn.job(application_id, which).directory
