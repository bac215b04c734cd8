"""Which tokens an application gets, and brings: with stand-ins for HDFS, the key server and the ResourceManager.

tests/jobs/test_other_tokens.py has real ones.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from tests.runtime.delegation_tokens import made
from tony_provider.cluster.settings import NO_KEY_SERVER
from tony_provider.cluster.yarn.credentials import HdfsClusters, KeyServerAccess, StoreTokens
from tony_provider.cluster.yarn.rest import YarnRest
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, HIVE_TOKEN, KEY_SERVER_TOKEN, Credentials, Token
from tony_provider.runtime.storage.errors import StorageAuthError, StorageUnreachable
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage

KEYS = "kms://http@localhost:9600/kms"
HIVE = "thrift://localhost:9083"


@attrs.define
class Server:
    """Gives tokens of a number of its own, unless it is away."""

    number: int
    kind: str = "WEBHDFS delegation"
    named: str = ""  # the key server that it tells
    away: bool = False
    renewers: list[str] = attrs.field(factory=list)
    cancelled: list[str] = attrs.field(factory=list)
    addresses: list[str] = attrs.field(factory=lambda: ["http://localhost:9600/kms"])
    name: str = HIVE

    def get_delegation_token(self, renewer: str = "") -> str:
        if self.away:
            raise StorageUnreachable("hdfs:///", "get a token for", "nobody there")
        self.renewers.append(renewer)
        token = Token.from_url_string(made(self.number, 1000, 9000).text)
        return attrs.evolve(token, kind=self.kind).to_url_string()

    def renew_delegation_token(self, token: str) -> int:
        return 5000 + self.number

    def cancel_delegation_token(self, token: str) -> None:
        self.cancelled.append(token)

    def key_server(self) -> str:
        return self.named


@pytest.fixture
def servers() -> dict[str, Server]:
    return {"own": Server(1, named=KEYS), "localhost:8021": Server(2), KEYS: Server(3, KEY_SERVER_TOKEN)}


def tokens(
    servers: dict[str, Server], *, setting: str | None = None, insecure_http: bool = True, **settings: str
) -> StoreTokens:
    known = {"dfs.nameservices": "prod", "yarn.resourcemanager.principal": "rm/_HOST@REALM", **settings}
    hdfs = HdfsClusters(
        cast(WebHdfsStorage, servers["own"]),
        "prod",
        {"localhost:8021": cast(WebHdfsStorage, servers["localhost:8021"])},
        KeyServerAccess(setting, cast(Any, servers.__getitem__), insecure_http),
        cast(Any, servers.get(HIVE)),
    )
    rest = cast(YarnRest, SimpleNamespace(setting=known.get, active_host=lambda: "rm1"))
    return StoreTokens(hdfs, rest, "alice", None)


def test_a_token_of_the_metastore_is_only_for_who_wants_it(servers: dict[str, Server]) -> None:
    servers[HIVE] = Server(4, HIVE_TOKEN)
    credentials = Credentials()
    every = tokens(servers, setting=NO_KEY_SERVER)
    assert HIVE not in [each.name for each in every.fetch(credentials).others]
    fetched = every.fetch(credentials, hive=True)
    token = credentials.tokens["hive.server2.delegation.token"]
    assert (token.kind, token.service) == (HIVE_TOKEN, "")
    [of_hive] = [each for each in fetched.others if each.name == HIVE]
    assert of_hive.id.number == 4
    every.cancel(fetched)
    assert servers[HIVE].cancelled == [of_hive.text]
    newer = every.newer([HIVE]).token
    assert [(each.name, each.until_ms) for each in newer.others] == [(HIVE, 5004)]


@pytest.mark.parametrize(("use_ip", "host"), [("true", "127.0.0.1"), ("false", "localhost")])
def test_an_application_gets_one_of_each(servers: dict[str, Server], use_ip: str, host: str) -> None:
    credentials = Credentials()
    fetched = tokens(servers, insecure_http=True, **{"hadoop.security.token.service.use_ip": use_ip}).fetch(credentials)
    assert {alias: (each.kind, each.service) for alias, each in credentials.tokens.items()} == {
        "ha-hdfs:prod": (HDFS_TOKEN, "ha-hdfs:prod"),
        f"{host}:8021": (HDFS_TOKEN, f"{host}:8021"),
        KEYS: (KEY_SERVER_TOKEN, KEYS),
        f"{host}:9600": (KEY_SERVER_TOKEN, KEYS),
    }
    assert [each.name for each in fetched.others] == ["localhost:8021", KEYS]
    assert {renewer for each in servers.values() for renewer in each.renewers} == {"rm/rm1@REALM"}


def test_those_that_run_are_brought_what_they_have(servers: dict[str, Server]) -> None:
    newer = tokens(servers).newer({KEYS, "gone:8020"})
    assert [(each.name, each.until_ms) for each in newer.token.others] == [(KEYS, 5003)]
    assert (newer.token.until_ms, newer.problems) == (5001, [])
    assert servers[KEYS].renewers == ["alice"]


def test_no_token_of_a_key_server_goes_over_plain_http(
    servers: dict[str, Server], caplog: pytest.LogCaptureFixture
) -> None:
    """Where only HDFS has named it the job goes without; where the connection has, that is an error."""
    fetched = tokens(servers, insecure_http=False).fetch(Credentials())
    assert [each.name for each in fetched.others] == ["localhost:8021"]
    assert "plain http, so an eavesdropper" in caplog.text
    with pytest.raises(StorageAuthError, match="insecure_http"):
        tokens(servers, setting=KEYS, insecure_http=False).fetch(Credentials())
    assert servers[KEYS].renewers == []


def test_no_key_server_is_asked_that_only_the_application_names(servers: dict[str, Server]) -> None:
    """Its file lies where its user may write."""
    newer = tokens(servers).newer({"kms://http@mallory:9600/kms"})
    assert (newer.token.others, newer.problems) == ([], [])


def test_one_that_is_away_keeps_no_others_token_back(servers: dict[str, Server]) -> None:
    servers["localhost:8021"].away = True
    newer = tokens(servers).newer({KEYS, "localhost:8021"})
    assert [each.name for each in newer.token.others] == [KEYS]
    assert [str(each) for each in newer.problems] == ["cannot get a token for hdfs:///: nobody there; " + ADVICE]


ADVICE = "check that the store runs and that its addresses are right"


def test_a_submission_that_lacks_one_leaves_none(servers: dict[str, Server]) -> None:
    servers["localhost:8021"].away = True
    with pytest.raises(StorageUnreachable):
        tokens(servers).fetch(Credentials())
    assert len(servers["own"].cancelled) == 1


def test_a_key_server_that_only_hdfs_has_named_may_be_away(
    servers: dict[str, Server], caplog: pytest.LogCaptureFixture
) -> None:
    servers[KEYS].away = True
    with caplog.at_level(logging.WARNING):
        fetched = tokens(servers).fetch(Credentials())
    assert [each.name for each in fetched.others] == ["localhost:8021"]
    assert "no key server token" in caplog.text
    assert "set `key_server` to `none`" in caplog.text
    with pytest.raises(StorageUnreachable):
        tokens(servers, setting=KEYS).fetch(Credentials())
    assert len(servers["own"].cancelled) == len(servers["localhost:8021"].cancelled) == 1


def test_no_key_server_is_asked_where_the_connection_says_so(servers: dict[str, Server]) -> None:
    assert [each.name for each in tokens(servers, setting=NO_KEY_SERVER).fetch(Credentials()).others] == [
        "localhost:8021"
    ]
    assert servers[KEYS].renewers == []
