"""The hook on a real YARN with Kerberos."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hooks.conftest import AddConnection, add_yarn
from tests.hooks.jobs import below, ended, identity, job, running
from tony_provider.cluster.errors import ClusterAuthError
from tony_provider.cluster.interface import ApplicationState
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.application import YarnAccess
from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, WEBHDFS_TOKEN, Credentials, Token
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage.errors import StorageAuthError
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage


def become(monkeypatch: pytest.MonkeyPatch, cluster: HadoopCluster, user: str) -> None:
    for name in ("KRB5_CONFIG", "KRB5_CLIENT_KTNAME", "KRB5CCNAME"):
        monkeypatch.setenv(name, cluster.layout.kerberos_environment(user)[name])


def test_a_job_runs_as_who_the_ticket_is(
    add_connection: AddConnection, secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    become(monkeypatch, secure_hadoop, "alice")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True)
    (tmp_path / "check.sh").write_text('test -z "$HADOOP_TOKEN_FILE_LOCATION"\n')
    with TonyHook() as hook:
        assert hook.layout.root == f"{secure_hadoop.fs_default}/user/alice/.tony"
        which = identity(hook)
        application_id = hook.submit(
            SubmissionRequest(job("sh check.sh", files=["check.sh"]), which, search_path=[tmp_path])
        ).application_id
        application = ended(hook, application_id)
        assert application.final_status is FinalStatus.SUCCEEDED, application.diagnostics
        assert application.user == "alice"
        status = hook.job_status(which, application_id)
        assert status is not None
        assert status.state.value == "SUCCEEDED"
        # The NodeManagers of this cluster have no service principals of their own: their logs cannot be had.
        assert hook.job(application_id).master_log() == ""
        hook.job(application_id, which).clean_up()
        [_] = [uri for uri in below(hook, hook.layout.root) if uri.endswith(f"{application_id}/result.json")]


@pytest.mark.long
def test_a_proxy_user_owns_the_job_and_its_kill(
    add_connection: AddConnection, secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, secure_hadoop, "airflow")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True)
    with TonyHook(proxy_user="bob") as hook:
        which = identity(hook)
        application_id = hook.submit(SubmissionRequest(job("sleep 600"), which)).application_id
        running(hook, which, application_id)
        hook.kill(application_id, "killed by a test")
        application = ended(hook, application_id)
        assert (application.user, application.state) == ("bob", ApplicationState.KILLED)
        assert "killed by a test" in application.diagnostics
        assert hook.storage().status(hook.layout.root).owner == "bob"


def test_a_master_obeys_its_owner_through_the_proxy_and_nobody_else(
    add_connection: AddConnection, secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, secure_hadoop, "airflow")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True)
    with TonyHook(proxy_user="bob") as hook:
        access = hook.get_conn().access("")
        assert isinstance(access, YarnAccess)
        assert access.administrators  # this cluster heeds access lists
        which = identity(hook, "control")
        application_id = hook.submit(SubmissionRequest(job("sleep 600"), which)).application_id
        running(hook, which, application_id)
        become(monkeypatch, secure_hadoop, "alice")
        with TonyHook() as alices, pytest.raises(ClusterAuthError, match=r"alice.* may not modify"):
            alices.control(application_id, "stop", {"reason": "not hers"})
        become(monkeypatch, secure_hadoop, "airflow")
        hook.control(application_id, "stop", {"reason": "enough, says bob"})
        application = ended(hook, application_id)
        assert (application.user, application.final_status) == ("bob", FinalStatus.KILLED)
        assert "enough, says bob" in application.diagnostics


def test_impersonation_that_is_not_allowed(
    add_connection: AddConnection, secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, secure_hadoop, "alice")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True, timeout=5)
    with TonyHook(proxy_user="bob") as hook, pytest.raises(ClusterAuthError, match="bob"):
        hook.submit(SubmissionRequest(job(), identity(hook)))


def test_without_a_ticket(
    add_connection: AddConnection, secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    become(monkeypatch, secure_hadoop, "alice")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path}/none.keytab")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True, timeout=5)
    with TonyHook() as hook, pytest.raises(ClusterAuthError, match="there is no Kerberos ticket"):
        hook.submit(SubmissionRequest(job(), identity(hook)))
    add_yarn(add_connection, secure_hadoop, login="alice", kerberos=True, timeout=5)
    with TonyHook() as hook, pytest.raises(ClusterAuthError, match="Kerberos"):
        hook.submit(SubmissionRequest(job(), identity(hook)))


def test_a_secure_cluster_that_the_connection_takes_for_a_simple_one(
    add_connection: AddConnection, secure_hadoop: HadoopCluster
) -> None:
    add_yarn(add_connection, secure_hadoop, login="alice", kerberos=False, timeout=5)
    with TonyHook() as hook, pytest.raises(ClusterAuthError, match="set `kerberos` to true in the tony connection"):
        hook.submit(SubmissionRequest(job(), identity(hook)))


def test_the_tokens_of_a_submission_that_fails_are_cancelled(
    add_connection: AddConnection, secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, secure_hadoop, "alice")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True)
    given: list[str] = []
    original = WebHdfsStorage.get_delegation_token

    def watched(self: WebHdfsStorage, renewer: str) -> str | None:
        token = original(self, renewer)
        given.append(token or "")
        return token

    def fail(*_: object) -> None:
        raise RuntimeError("no submission today")

    monkeypatch.setattr(WebHdfsStorage, "get_delegation_token", watched)
    with TonyHook() as hook:
        monkeypatch.setattr(hook.get_conn(), "submit", fail)
        with pytest.raises(RuntimeError, match="no submission today"):
            hook.submit(SubmissionRequest(job(), identity(hook)))
        [token] = given
        assert Token.from_url_string(token).kind == f"S{WEBHDFS_TOKEN}"  # of an https NameNode
        storage = hook.storage()
        assert isinstance(storage, WebHdfsStorage)
        with pytest.raises(StorageAuthError):
            WebHdfsStorage(storage.config, delegation_token=token).status(hook.layout.root)


def test_what_the_credentials_hold(
    add_connection: AddConnection, secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, secure_hadoop, "alice")
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True)
    with TonyHook() as hook:
        tokens = hook.opened.tokens
        assert tokens is not None
        credentials = Credentials()
        token = tokens.fetch(credentials)
        service = "ha-hdfs:" + secure_hadoop.fs_default.removeprefix("hdfs://")  # two NameNodes under one name
        assert [(each.kind, each.service) for each in credentials.tokens.values()] == [(HDFS_TOKEN, service)]
        assert credentials.secrets[contract.SECRET_STORE_TOKEN].decode() == token.text
        tokens.cancel(token)
