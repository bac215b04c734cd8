"""The key server's answers, from a scripted stand-in; tests/jobs/test_other_tokens.py has a real one."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from tests.hadoop.ports import free_ports
from tests.runtime.storage.servers import Reply, Request, scripted
from tony_provider.runtime.storage import StorageError, StorageUnreachable, WebHdfsConfig, WebHdfsStorage
from tony_provider.runtime.storage.errors import StorageZoneClosed
from tony_provider.runtime.storage.webhdfs.key_server import KeyServer
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsAnswer, check_answer


class Exchange:
    """Of a stand-in, which proves nothing."""

    def __init__(self, host: str) -> None:
        self.headers = {"Authorization": f"Negotiate {host}"}

    def check(self, answer: str | None) -> None:
        assert answer is None


def of(*addresses: str) -> KeyServer:
    """One of several instances, the way its URI names them; they share a port."""
    hosts = ";".join(urlsplit(each).hostname or "" for each in addresses)
    uri = f"kms://http@{hosts}:{urlsplit(addresses[-1]).port}/kms"
    return KeyServer(uri, WebHdfsConfig(["http://nn:9870"], proxy_user="bob"), Exchange)


def test_a_token_is_got_renewed_and_cancelled_for_whom_we_act() -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        replies = {"GETDELEGATIONTOKEN": {"Token": {"urlString": "a-token"}}, "RENEWDELEGATIONTOKEN": {"long": 17}}
        return Reply(200, json.dumps(replies[request.op]).encode() if request.op in replies else b"")

    with scripted(answer) as address:
        server = of("http://127.0.0.9:1", address)  # nothing listens at the first
        assert server.get_delegation_token("yarn") == "a-token"
        assert server.renew_delegation_token("a-token") == 17
        server.cancel_delegation_token("a-token")
    assert [(each.method, each.params["doAs"]) for each in asked] == [("GET", "bob"), ("PUT", "bob"), ("PUT", "bob")]
    assert asked[0].params["renewer"] == "yarn"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"Token": null}', b"<html>"])
def test_what_is_no_key_server_is_told(body: bytes) -> None:
    with scripted(lambda _: Reply(200, body)) as address, pytest.raises(StorageError, match="not that of a key server"):
        of(address).get_delegation_token("yarn")


def test_one_that_is_away_is_told() -> None:
    [port] = free_ports(1)
    with pytest.raises(StorageUnreachable, match=rf"http://127.0.0.1:{port}/kms: Connection refused"):
        of(f"http://127.0.0.1:{port}").get_delegation_token("yarn")


@pytest.mark.parametrize(
    "said",
    [
        "User:hdfs not allowed to do 'DECRYPT_EEK' on 'private'",
        "User [hdfs] is not authorized to perform [DECRYPT_EEK] on key with ACL name [private]!!",
    ],
)
def test_a_zone_whose_key_datanodes_may_not_use_says_what_to_do(said: str) -> None:
    """As a DataNode of Hadoop 3.4 has said it."""
    remote = {"exception": "AuthorizationException", "javaClassName": "org.x.AuthorizationException", "message": said}
    with pytest.raises(StorageZoneClosed, match="DataNodes decrypt as their own user"):
        check_answer(
            WebHdfsAnswer(403, None, json.dumps({"RemoteException": remote}).encode()), "hdfs:///zone/a", "write"
        )


@pytest.mark.parametrize(
    ("reply", "uri"),
    [
        (
            Reply(200, b'{"FsServerDefaults": {"keyProviderUri": "kms://http@keys:9600/kms"}}'),
            "kms://http@keys:9600/kms",
        ),
        (Reply(200, b'{"FsServerDefaults": {"keyProviderUri": ""}}'), ""),
        (Reply(200, b'{"FsServerDefaults": {"replication": 3}}'), ""),
        (Reply(400, b'{"RemoteException": {"exception": "IllegalArgumentException", "message": "op"}}'), ""),
        (Reply(403, b"<html>"), ""),
    ],
)
def test_hdfs_names_its_key_server_or_does_not(reply: Reply, uri: str) -> None:
    with scripted(lambda _: reply) as address:
        assert WebHdfsStorage(WebHdfsConfig([address])).key_server() == uri
