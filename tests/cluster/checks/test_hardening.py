"""The hardening list of docs/platform/harden.md: what each value of a setting is called."""

from __future__ import annotations

import http.server
import json
import re
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.documents.pages import ROOT
from tony_provider.cluster.checks.daemons import NameNodeChecks
from tony_provider.cluster.checks.doctor import (
    OF_NAMENODE,
    OF_RESOURCE_MANAGER,
    _judge,
    check_hardening,
    check_network,
    check_rights,
)
from tony_provider.cluster.findings import Finding, Severity
from tony_provider.cluster.http import RequestOptions
from tony_provider.runtime.jobspec.model import Network
from tony_provider.runtime.storage.local import LocalStorage

EVERY = {each.name: each for each in (*OF_RESOURCE_MANAGER, *OF_NAMENODE)}
EXECUTORS = "org.apache.hadoop.yarn.server.nodemanager."
STORES = "org.apache.hadoop.yarn.server.resourcemanager.recovery."
LIMIT = "yarn.nodemanager.linux-container-executor.nonsecure-mode.limit-users"
LINUX = {"yarn.nodemanager.container-executor.class": f"{EXECUTORS}LinuxContainerExecutor"}


@pytest.mark.parametrize(
    ("name", "value", "good"),
    [
        ("hadoop.security.authentication", "kerberos", True),
        ("hadoop.security.authentication", "simple", False),
        ("yarn.http.policy", "HTTP_ONLY", False),
        ("yarn.nodemanager.container-executor.class", f"{EXECUTORS}LinuxContainerExecutor", True),
        ("yarn.nodemanager.container-executor.class", f"{EXECUTORS}DefaultContainerExecutor", False),
        ("yarn.acl.enable", "false", False),
        ("yarn.admin.acl", "*", False),
        ("yarn.admin.acl", "yarn admins", True),
        ("hadoop.rpc.protection", "privacy", True),
        ("hadoop.rpc.protection", "authentication,privacy", False),
        ("yarn.resourcemanager.store.class", f"{STORES}ZKRMStateStore", False),
        ("yarn.resourcemanager.store.class", f"{STORES}FileSystemRMStateStore", True),
        ("hadoop.security.authorization", "true", True),
        ("hadoop.security.authorization", "false", False),
        ("dfs.encrypt.data.transfer", "true", True),
        ("dfs.namenode.acls.enabled", "false", False),
    ],
)
def test_a_setting(name: str, value: str, good: bool) -> None:
    finding = _judge(EVERY[name], {name: value})
    assert finding.outcome is (Severity.OK if good else Severity.WARNING)
    assert bool(finding.advice) is not good


def test_what_one_setting_means_depends_on_others() -> None:
    limited = {LIMIT: "true", **LINUX}
    assert _judge(EVERY[LIMIT], limited).outcome is Severity.WARNING
    for kerberos in ("kerberos", " Kerberos"):  # Hadoop reads it in any case
        assert _judge(EVERY[LIMIT], {**limited, "hadoop.security.authentication": kerberos}).outcome is Severity.OK
    store = {
        "yarn.resourcemanager.store.class": f"{STORES}ZKRMStateStore",
        "yarn.resourcemanager.zk-acl": "sasl:rm:rwcda",
    }
    assert _judge(EVERY["yarn.resourcemanager.store.class"], store).outcome is Severity.OK


def test_what_is_not_shown_is_not_called_good() -> None:
    assert _judge(EVERY["yarn.acl.enable"], {}).outcome is Severity.SKIPPED


def answering(status: int, body: str) -> AbstractContextManager[http.server.HTTPServer]:
    """A stand-in for a daemon: it answers everything with this."""

    class Daemon(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    return http.server.HTTPServer(("127.0.0.1", 0), Daemon)


def looked_at(status: int, body: str) -> list[Finding]:
    with answering(status, body) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        namenodes = NameNodeChecks(RequestOptions(), active=[f"http://127.0.0.1:{server.server_port}"])
        found = list(check_hardening(namenodes, OF_NAMENODE))
        thread.join()
    return found


def test_the_configuration_of_a_stand_in_for_a_namenode() -> None:
    properties = [
        {"key": name, "value": "true", "resource": "hdfs-site.xml"}
        for name in EVERY
        if "dfs." in name or "authorization" in name
    ]
    found = looked_at(200, json.dumps({"properties": properties}))
    assert [each.outcome.value for each in found] == ["ok", "warning", "ok", "ok", "ok"]
    assert str(found[1]).startswith(
        "Hardening dfs.http.policy: is 'true', so files and tokens are sent unencrypted; set it to"
    )


@pytest.mark.parametrize(("status", "body"), [(403, "no"), (200, "no JSON"), (200, '{"properties": "none"}')])
def test_a_stand_in_that_hides_its_configuration_is_not_called_good(status: int, body: str) -> None:
    (finding,) = looked_at(status, body)
    assert (finding.outcome, "cannot read the configuration" in finding.detail) == (Severity.SKIPPED, True)


def test_the_staging_directory_s_rights(tmp_path: Path) -> None:
    storage, uri = LocalStorage(), f"file://{tmp_path}/staging"
    (missing,) = check_rights(storage, uri, "")
    assert missing.outcome is Severity.SKIPPED
    (tmp_path / "staging").mkdir(mode=0o755)
    (open_to_others,) = check_rights(storage, uri, "")
    assert (open_to_others.outcome, open_to_others.advice) == (Severity.WARNING, "set its mode to 0700")
    (tmp_path / "staging").chmod(0o700)
    (closed,) = check_rights(storage, uri, storage.status(uri).owner)
    assert closed.outcome is Severity.OK
    if owner := storage.status(uri).owner:
        (another,) = check_rights(storage, uri, "alice")
        assert (another.outcome, owner in another.detail) == (Severity.WARNING, True)


def test_nobody_has_looked_at_the_network() -> None:
    (silent,) = check_network(None)
    (said,) = check_network(Network.ISOLATED)
    assert (silent.outcome, said.outcome) == (Severity.WARNING, Severity.OK)


def test_the_document_sets_each_of_them_to_a_safe_value() -> None:
    text = (ROOT / "docs" / "platform" / "harden.md").read_text()
    (block,) = re.findall(r"```properties\n(.*?)```", text, re.DOTALL)
    settings = dict(line.split("=", 1) for line in block.splitlines())
    assert set(settings) == {*EVERY, "yarn.resourcemanager.zk-acl"}
    assert [each.name for each in EVERY.values() if _judge(each, settings).outcome is not Severity.OK] == []
