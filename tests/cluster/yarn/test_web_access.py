"""Whom a master is told to answer."""

from __future__ import annotations

import pytest

from tests.hadoop.cluster import HadoopCluster
from tony_provider.cluster.errors import ConfigurationHidden
from tony_provider.cluster.yarn.configuration import administrators_acl, web_proxy_hosts
from tony_provider.cluster.yarn.rest import RestConfig, YarnRest

RM = "yarn.resourcemanager"
PAIR = {f"{RM}.ha.enabled": "true", f"{RM}.ha.rm-ids": "rm1, rm2"}


class Configured(YarnRest):
    """A ResourceManager with these settings, reached at `reached`; None: it hides them."""

    def __init__(self, settings: dict[str, str] | None, reached: str = "reached") -> None:
        super().__init__(RestConfig([f"http://{reached}:8088", "https://second.example:8090/gateway"]))
        self.known = settings
        self.reached = reached

    def setting(self, name: str) -> str | None:
        if self.known is None:
            raise ConfigurationHidden("to administrators only")
        return self.known.get(name)

    def active_host(self) -> str:
        return self.reached.strip("[]")


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        ({f"{RM}.webapp.address": "rm.example:8088"}, ["rm.example"]),
        ({f"{RM}.webapp.address": "0.0.0.0:8088"}, ["reached"]),
        ({f"{RM}.webapp.address": "[2001:db8::1]:8088"}, ["2001:db8::1"]),
        ({f"{RM}.webapp.address": "[::]:8088"}, ["reached"]),
        ({}, ["reached"]),
        (
            {
                "yarn.http.policy": "HTTPS_ONLY",
                f"{RM}.webapp.address": "plain:8088",
                f"{RM}.webapp.https.address": "tls:8090",
            },
            ["tls"],
        ),
        (
            {
                **PAIR,
                f"{RM}.webapp.address.rm1": "one:8088",
                f"{RM}.hostname.rm2": "two",
                f"{RM}.webapp.address": "x:1",
            },
            ["one", "two"],
        ),
        ({**PAIR, f"{RM}.webapp.address": "x:1"}, ["x"]),
        ({**PAIR, "yarn.web-proxy.address": "proxy.example:9099", f"{RM}.webapp.address": "x:1"}, ["proxy.example"]),
        ({"yarn.web-proxy.address": "", f"{RM}.webapp.address": "x:1"}, ["x"]),
        (None, ["reached", "second.example"]),
    ],
)
def test_proxies_are_those_that_hadoop_means(settings: dict[str, str] | None, hosts: list[str]) -> None:
    assert web_proxy_hosts(Configured(settings), ["scheduler:8030"]) == hosts


@pytest.mark.parametrize("reached", ["localhost", "LOCALHOST.localdomain", "127.0.0.1", "[::1]"])
@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        ({f"{RM}.webapp.address": "0.0.0.0:8088"}, ["rm1", "rm2"]),
        ({f"{RM}.webapp.address": "localhost:8088"}, ["rm1", "rm2"]),
        ({"yarn.web-proxy.address": "0.0.0.0:9099"}, ["rm1", "rm2"]),
        ({f"{RM}.webapp.address": "rm.example:8088"}, ["rm.example"]),
        (None, ["rm1", "rm2", "second.example"]),
    ],
)
def test_no_master_trusts_its_own_node_because_we_reach_the_resourcemanager_at_the_loopback(
    settings: dict[str, str] | None, reached: str, hosts: list[str]
) -> None:
    assert web_proxy_hosts(Configured(settings, reached), ["rm1:8030", "rm2:8030"]) == hosts


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"yarn.acl.enable": "false", "yarn.admin.acl": "yarn"}, None),
        ({"yarn.acl.enable": "true", "yarn.admin.acl": "yarn,root hadoop"}, "yarn,root hadoop"),
        ({"yarn.acl.enable": "true"}, "*"),
        (None, ""),
    ],
)
def test_administrators_count_where_lists_do(settings: dict[str, str] | None, expected: str | None) -> None:
    assert administrators_acl(Configured(settings)) == expected


def test_a_real_cluster_says_it_all(hadoop: HadoopCluster) -> None:
    rest = YarnRest(RestConfig(hadoop.rm_webapp, user="alice"))
    assert web_proxy_hosts(rest, hadoop.state.scheduler) == ["127.0.0.2"]
    assert administrators_acl(rest) is None
    rest.close()
