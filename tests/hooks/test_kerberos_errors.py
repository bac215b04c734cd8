"""What real KDCs and Hadoops refuse is told with its reason and its remedy."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import attrs
import pytest
import requests

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.kdc import Kdc
from tests.hadoop.settings import REALM
from tests.hadoop.tools import kdc_program
from tests.hooks.conftest import AddConnection, add_yarn
from tests.hooks.jobs import ended, identity, job
from tests.hooks.test_secure_yarn import become
from tests.runtime.storage.servers import Reply, scripted
from tests.waiting import until
from tony_provider.cluster.errors import ClusterAuthError
from tony_provider.cluster.interface import ApplicationState
from tony_provider.cluster.settings import YarnSettings
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.yarn.credentials import http_auth, own_tickets, ticket
from tony_provider.cluster.yarn.rest import RestConfig, YarnRest
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

# The same address as 127.0.0.2 and localhost to the C library, and another server to Kerberos.
ELSEWHERE = "0177.0.0.1"
KERBEROS = YarnSettings([], WebHdfsConfig(["https://localhost:1"]), kerberos=True)


@pytest.fixture(autouse=True)
def alice(secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    become(monkeypatch, secure_hadoop, "alice")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")


def rest(cluster: HadoopCluster, **more: Any) -> YarnRest:
    config = RestConfig(cluster.rm_webapp, verify=str(cluster.layout.ca_file), auth=http_auth(KERBEROS), timeout=20)
    return YarnRest(attrs.evolve(config, **more))


def elsewhere(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=f"{ELSEWHERE}:{parts.port}"))


def store(cluster: HadoopCluster, address: Callable[[str], str] = str, **more: Any) -> WebHdfsStorage:
    config = WebHdfsConfig(list(map(address, cluster.webhdfs)), ca_file=str(cluster.layout.ca_file), timeout=20)
    return WebHdfsStorage(attrs.evolve(config, **more), negotiate=own_tickets().negotiate)


def kadmin(cluster: HadoopCluster, command: str) -> None:
    environment = Kdc(cluster.layout, cluster.state.addresses.kdc).environment()
    program = str(kdc_program("kadmin.local"))
    subprocess.run([program, "-r", REALM, "-q", command], env=environment, check=True, capture_output=True, timeout=60)


def test_no_ticket(secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path}/none.keytab")
    for act in (
        ticket,
        lambda: rest(secure_hadoop).setting("fs.defaultFS"),
        lambda: store(secure_hadoop).status("hdfs:///user/alice"),
    ):
        with pytest.raises(ClusterAuthError, match=r"there is no Kerberos ticket \(No Kerberos.*run kinit"):
            act()


def test_a_ticket_that_has_expired(
    secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keytab = str(secure_hadoop.layout.keytab("alice"))
    kinit = ["kinit", "-l", "1s", "-k", "-t", keytab, "alice"]
    subprocess.run(kinit, check=True, capture_output=True, timeout=60)
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path}/none.keytab")  # which would renew it
    expired = r"the Kerberos ticket has expired \(.*; run kinit"

    def refused() -> bool:
        try:
            own_tickets().negotiate("localhost")
        except ClusterAuthError as error:
            return re.search(expired, str(error)) is not None
        return False

    until(refused, "the end of the ticket")
    for act in (
        ticket,
        lambda: rest(secure_hadoop).setting("fs.defaultFS"),
        lambda: store(secure_hadoop).status("hdfs:///user/alice"),
    ):
        with pytest.raises(ClusterAuthError, match=expired):
            act()


def test_a_server_that_the_kdc_does_not_know(secure_hadoop: HadoopCluster) -> None:
    for act in (
        lambda: rest(secure_hadoop, addresses=list(map(elsewhere, secure_hadoop.rm_webapp))).setting("x"),
        lambda: store(secure_hadoop, elsewhere, verify=False).status("hdfs:///user/alice"),
    ):
        with pytest.raises(ClusterAuthError, match=r"the KDC knows no server of this name .*write the server's full"):
            act()


def test_a_server_whose_keytab_lacks_the_principal(secure_hadoop: HadoopCluster) -> None:
    kadmin(secure_hadoop, f"addprinc -randkey HTTP/{ELSEWHERE}")
    try:
        with pytest.raises(StorageError, match=r"the server has no key for the ticket.*replace its keytab"):
            store(secure_hadoop, elsewhere, verify=False).status("hdfs:///user/alice")
    finally:
        kadmin(secure_hadoop, f"delprinc -force HTTP/{ELSEWHERE}")


def test_impersonation_that_is_refused(secure_hadoop: HadoopCluster) -> None:
    refused = r"let this user impersonate other users \(User: alice.* is not allowed to impersonate bob\); set hadoop"
    with pytest.raises(ClusterAuthError, match=refused):
        rest(secure_hadoop, proxy_user="bob").setting("fs.defaultFS")
    with pytest.raises(StorageError, match=refused):
        store(secure_hadoop, proxy_user="bob").status("hdfs:///user/alice")


def test_a_renewal_that_is_refused(secure_hadoop: HadoopCluster) -> None:
    storage = store(secure_hadoop)
    token = storage.get_delegation_token("yarn")
    assert token is not None
    with pytest.raises(StorageError, match=r"only the renewer that this token names can renew it[^;]*; set `rm_pr"):
        storage.renew_delegation_token(token)
    storage.cancel_delegation_token(token)


def test_a_resource_manager_that_may_not_renew(add_connection: AddConnection, secure_hadoop: HadoopCluster) -> None:
    add_yarn(add_connection, secure_hadoop, login=None, kerberos=True, rm_principal="bob")
    with TonyHook() as hook:
        application_id = hook.submit(SubmissionRequest(job(), identity(hook))).application_id
        application = ended(hook, application_id)
    assert application.state is ApplicationState.FAILED
    assert application.diagnostics.startswith("only the renewer that this token names can renew it")
    assert application.diagnostics.endswith(
        "set `rm_principal` in the tony connection to the ResourceManager's own principal"
    )


ANSWERS = {
    "/ws/v1/cluster/info": b'{"clusterInfo": {"haState": "ACTIVE"}}',
    "/webhdfs/v1/user/alice": b'{"FileStatus": {"length": 0, "modificationTime": 1, "type": "DIRECTORY"}}',
}


@pytest.mark.parametrize("proof", [None, "Negotiate", "Negotiate b25seSBtZQ==", "Negotiate ?", "Basic realm=x"])
def test_a_server_that_does_not_prove_itself(proof: str | None) -> None:
    """One that stands where the real one should, and answers as that would."""
    with scripted(lambda request: Reply(200, ANSWERS[urlsplit(request.path).path], proof=proof)) as address:
        place = address.replace("127.0.0.1", "localhost")
        unproven = "localhost did not prove to be HTTP@localhost"
        with pytest.raises(ClusterAuthError, match=unproven):
            YarnRest(RestConfig([place], auth=http_auth(KERBEROS), timeout=5)).setting("fs.defaultFS")
        with pytest.raises(ClusterAuthError, match=unproven):
            WebHdfsStorage(WebHdfsConfig([place], timeout=5), negotiate=own_tickets().negotiate).status(
                "hdfs:///user/alice"
            )


def test_what_a_server_says_in_another_ones_name_is_not_believed(secure_hadoop: HadoopCluster) -> None:
    """A proof is of one exchange, and of one server: not that of the same server in another exchange."""
    first, second = own_tickets().negotiate("localhost"), own_tickets().negotiate("localhost")
    response = requests.get(
        f"{secure_hadoop.services.active_namenode()}/webhdfs/v1/?op=GETFILESTATUS",
        headers=first.headers,
        verify=str(secure_hadoop.layout.ca_file),
        timeout=60,
    )
    proof = response.headers["WWW-Authenticate"]
    with pytest.raises(ClusterAuthError, match="its proof is wrong"):
        second.check(proof)
    first.check(proof)
