"""A real Router of HDFS federation in front of a cluster: one tree of directories from several NameNodes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.hadoop.client import HttpError
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.config import site_file
from tests.hadoop.daemons import ClusterError
from tests.hadoop.java import Java
from tests.hadoop.pairs import NAMESERVICE, OTHER_NAMESERVICE
from tests.hadoop.ports import free_ports
from tests.hadoop.processes import Process, spawn, stop
from tests.hadoop.resolve import WEB_XML, resolve
from tests.hadoop.settings import REALM
from tests.jobs.places import USER
from tests.waiting import until

ARCHIVE, RESULTS = "/archive", f"/user/{USER}/results"
# Each mount point, with the HDFS and the directory that it shows.
MOUNTS = {"/": (NAMESERVICE, "/"), ARCHIVE: (OTHER_NAMESERVICE, "/"), RESULTS: (OTHER_NAMESERVICE, RESULTS)}
_FEDERATION = "org.apache.hadoop.hdfs.server.federation"
_MAIN = f"{_FEDERATION}.router.DFSRouter"
_ADMIN = "org.apache.hadoop.hdfs.tools.federation.RouterAdmin"
_SECONDS = 90.0


@dataclass(frozen=True)
class HdfsRouter:
    """A running Router. `authority` is its name in URIs, `webhdfs` its web address."""

    authority: str
    webhdfs: str


@contextmanager
def hdfs_router(hadoop: HadoopCluster, zookeeper: str = "") -> Iterator[HdfsRouter]:
    """Run a Router for a cluster with another NameNode; a secure one keeps its tokens in ZooKeeper.

    Raises ClusterError, ResolveError.
    """
    java = Java(resolve(hadoop.settings.version, ("hadoop-hdfs-rbf",)), hadoop.layout, hadoop.settings)
    rpc, web, admin = (f"localhost:{port}" for port in free_ports(3))
    values = {"rpc-address": rpc, "http-address": web, "admin-address": admin}
    _configure(hadoop, values, _tokens(hadoop, zookeeper) if hadoop.settings.secure else {})
    router = HdfsRouter(rpc, f"http://{web}")
    log = hadoop.layout.log("router")
    command = java.command("router", _MAIN)
    process = spawn(command, log=log, cwd=hadoop.layout.root, env=java.environment())
    try:
        other = hadoop.state.other_webhdfs
        hadoop.services.make_home(RESULTS, USER, other)
        until(lambda: _has_started(process, hadoop, router), lambda: log.read_text()[-3000:], _SECONDS)
        for path, (nameservice, directory) in MOUNTS.items():
            _mount(java, path, nameservice, directory)
        until(lambda: _answers(hadoop, router, RESULTS), "the Router has no mounts", _SECONDS)
        yield router
    finally:
        stop([process], 5)


def _tokens(hadoop: HadoopCluster, zookeeper: str) -> dict[str, str]:
    """How a Router of a secure cluster logs in, and where it keeps its tokens."""
    return {
        "dfs.federation.router.keytab.file": str(hadoop.layout.keytab("hdfs")),
        "dfs.federation.router.kerberos.principal": f"hdfs/localhost@{REALM}",
        "zk-dt-secret-manager.zkConnectionString": zookeeper,
        "zk-dt-secret-manager.zkAuthType": "none",
    }


def _configure(hadoop: HadoopCluster, addresses: dict[str, str], secure: dict[str, str]) -> None:
    conf = hadoop.layout.conf("router")
    shutil.copytree(hadoop.layout.conf("client"), conf)
    namenodes = [f"{NAMESERVICE}.{each.name}" for each in hadoop.state.addresses.namenodes]
    values = {
        **addresses,
        "default.nameserviceId": NAMESERVICE,
        "monitor.namenode": ",".join([*namenodes, OTHER_NAMESERVICE]),
        "monitor.localnamenode.enable": "false",
        "heartbeat.interval": "500",
        "cache.ttl": "500ms",
        "safemode.enable": "false",
        "store.driver.class": f"{_FEDERATION}.store.driver.impl.StateStoreFileImpl",
        "store.driver.file.directory": str(hadoop.layout.data / "router"),
    }
    properties = {f"dfs.federation.router.{name}": value for name, value in values.items()}
    (conf / "hdfs-rbf-site.xml").write_text(site_file(properties | secure))
    pages = conf / "webapps" / "router" / "WEB-INF"
    pages.mkdir(parents=True)
    (pages / "web.xml").write_text(WEB_XML)


def _has_started(process: Process, hadoop: HadoopCluster, router: HdfsRouter) -> bool:
    if not process.alive():
        raise ClusterError(f"the Router ended; its log ends with\n{hadoop.log('router').read_text()[-3000:]}")
    return _answers(hadoop, router, "/")


def _answers(hadoop: HadoopCluster, router: HdfsRouter, path: str) -> bool:
    try:
        hadoop.client(USER).get_json(f"{router.webhdfs}/webhdfs/v1{path}", op="LISTSTATUS")
    except HttpError:
        return False
    return True


def _mount(java: Java, path: str, nameservice: str, directory: str) -> None:
    command = java.command("router", _ADMIN, "-add", path, nameservice, directory)
    environment = java.environment()
    if java.settings.secure:  # our requests as this user have left a ticket there
        environment["KRB5CCNAME"] = java.layout.kerberos_environment("hdfs")["KRB5CCNAME"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ClusterError(f"cannot mount {path}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
