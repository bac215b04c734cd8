"""A YARN federation of one sub-cluster, with a real ZooKeeper and a real Router in front of its ResourceManager."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from tests.hadoop.client import HttpError
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.config import site_file
from tests.hadoop.daemons import ClusterError
from tests.hadoop.java import Java
from tests.hadoop.ports import free_ports
from tests.hadoop.processes import Process, spawn, stop
from tests.hadoop.resolve import resolve
from tests.hadoop.settings import LOOPBACK, Settings
from tests.jobs.places import USER
from tests.waiting import until

_SERVER = "org.apache.hadoop.yarn.server"
_ROUTER_HOST = "127.0.0.4"  # not that of a ResourceManager
_SECONDS = 90.0


def federated(zookeeper: str) -> Settings:
    """The cluster that is the only sub-cluster. Its nodes have AMRMProxy, by which masters reach other sub-clusters."""
    (proxy,) = free_ports(1)
    interceptor = f"{_SERVER}.nodemanager.amrmproxy.FederationInterceptor"
    of_yarn = {
        "hadoop.zk.address": zookeeper,
        "yarn.federation.enabled": "true",
        "yarn.federation.state-store.class": f"{_SERVER}.federation.store.impl.ZookeeperFederationStateStore",
        "yarn.federation.state-store.heartbeat.initial-delay": "1s",
        "yarn.federation.state-store.heartbeat-interval-secs": "1",
        "yarn.federation.cache-ttl.secs": "0",
        # Without it, a ResourceManager that is none of a pair is not found.
        "yarn.client.failover-proxy-provider": "org.apache.hadoop.yarn.client.DefaultNoHARMFailoverProxyProvider",
        "yarn.nodemanager.amrmproxy.enabled": "true",
        "yarn.nodemanager.amrmproxy.address": f"0.0.0.0:{proxy}",
        "yarn.nodemanager.amrmproxy.interceptor-class.pipeline": interceptor,
    }
    return Settings(nodemanagers=1, properties={"yarn-site": of_yarn})


@contextmanager
def yarn_router(hadoop: HadoopCluster) -> Iterator[str]:
    """Run a Router for a federated cluster; its web address."""
    java = Java(resolve(hadoop.settings.version, ("hadoop-yarn-server-router",)), hadoop.layout, hadoop.settings)
    client, admin, web = free_ports(3)
    values = {
        "clientrm.address": f"{LOOPBACK}:{client}",
        "clientrm.interceptor-class.pipeline": f"{_SERVER}.router.clientrm.FederationClientInterceptor",
        "rmadmin.address": f"{LOOPBACK}:{admin}",
        "webapp.address": f"{_ROUTER_HOST}:{web}",
        "webapp.interceptor-class.pipeline": f"{_SERVER}.router.webapp.FederationInterceptorREST",
    }
    conf = hadoop.layout.conf("yarn-router")
    shutil.copytree(hadoop.layout.conf("client"), conf)
    own = site_file({f"yarn.router.{name}": value for name, value in values.items()})
    shared, _, end = (conf / "yarn-site.xml").read_text().partition("</configuration>")
    (conf / "yarn-site.xml").write_text(shared + own.partition("<configuration>")[2] + end)
    log = hadoop.layout.log("yarn-router")
    command = java.command("yarn-router", f"{_SERVER}.router.Router")
    process = spawn(command, log=log, cwd=hadoop.layout.root, env=java.environment())
    address = f"http://{_ROUTER_HOST}:{web}"
    try:
        until(lambda: _knows_a_cluster(process, hadoop, address), lambda: log.read_text()[-3000:], _SECONDS)
        yield address
    finally:
        stop([process], 5)


def _knows_a_cluster(process: Process, hadoop: HadoopCluster, address: str) -> bool:
    if not process.alive():
        raise ClusterError(f"the Router ended; its log ends with\n{hadoop.log('yarn-router').read_text()[-3000:]}")
    try:
        hadoop.client(USER).get_json(f"{address}/ws/v1/cluster/metrics")
    except HttpError:
        return False
    return True
