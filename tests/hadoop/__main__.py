"""`python -m tests.hadoop start|stop|status|env|missing|fetch`: a Hadoop cluster by hand."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.fixtures import ATTACH, ATTACH_SECURE
from tests.hadoop.kdc import KdcError
from tests.hadoop.node_classes import node_classes
from tests.hadoop.resolve import ResolveError, is_here, resolve
from tests.hadoop.settings import DEFAULT_VERSION, Settings
from tests.hadoop.tls import TlsError
from tests.hadoop.tools import missing_tools

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    suffix = ("-secure" if arguments.secure else "") + ("-https" if arguments.https else "")
    root = arguments.root or REPOSITORY / ".tony" / f"hadoop-{arguments.version}{suffix}"
    try:
        return ACTS[arguments.act](root, arguments)
    except (ClusterError, KdcError, ResolveError, TlsError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.hadoop", description=__doc__)
    parser.add_argument("act", choices=list(ACTS))
    parser.add_argument("--root", type=Path, help="the cluster's folder (.tony/hadoop-<version> of the repository)")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="of Hadoop (%(default)s)")
    own = Settings()
    for name in (
        "namenodes",
        "datanodes",
        "nodemanagers",
        "resourcemanagers",
        "node-memory-mb",
        "node-vcores",
        "node-gpus",
    ):
        parser.add_argument(f"--{name}", type=int, default=getattr(own, name.replace("-", "_")), help="(%(default)s)")
    parser.add_argument("--secure", action="store_true", help="with Kerberos, and a KDC of its own")
    parser.add_argument("--https", action="store_true", help="all web addresses, with an authority of its own")
    parser.add_argument("--masters-https", default=own.masters_https, help="NONE, LENIENT or STRICT (%(default)s)")
    parser.add_argument("--rpc-protection", default=own.rpc_protection, help="authentication, integrity or privacy")
    parser.add_argument("--preemption", action="store_true", help="between queues, within seconds")
    parser.add_argument("--expiry-seconds", type=float, help="until a silent node or master is lost (600)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FILE:NAME=VALUE", help="a Hadoop property over ours"
    )
    parser.add_argument("--keep", action="store_true", help="stop: keep data and logs, for a later start")
    return parser


def _start(root: Path, arguments: argparse.Namespace) -> int:
    properties: dict[str, dict[str, str]] = {}
    for each in arguments.set:
        name, _, value = each.partition("=")
        file, _, name = name.partition(":")
        properties.setdefault(file, {})[name] = value
    cluster = HadoopCluster(
        root,
        Settings(
            version=arguments.version,
            namenodes=arguments.namenodes,
            datanodes=arguments.datanodes,
            resourcemanagers=arguments.resourcemanagers,
            nodemanagers=arguments.nodemanagers,
            node_memory_mb=arguments.node_memory_mb,
            node_vcores=arguments.node_vcores,
            node_gpus=arguments.node_gpus,
            secure=arguments.secure,
            https=arguments.https,
            masters_https=arguments.masters_https,
            rpc_protection=arguments.rpc_protection,
            preemption=arguments.preemption,
            expiry_seconds=arguments.expiry_seconds,
            properties=properties,
        ),
    )
    begun = time.monotonic()
    fresh = cluster.start()
    took = f"started in {time.monotonic() - begun:.1f} s" if fresh else "is already running"
    print(f"Hadoop {arguments.version} {took} in {root}")
    return _describe(cluster)


def _stop(root: Path, arguments: argparse.Namespace) -> int:
    if not root.exists():
        print(f"There is no cluster in {root}")
        return 0
    HadoopCluster(root).stop(keep=arguments.keep)
    print(f"Stopped the cluster of {root}" + (", data and logs are kept" if arguments.keep else ""))
    return 0


def _status(root: Path, arguments: argparse.Namespace) -> int:
    return _describe(HadoopCluster.load(root))


def _env(root: Path, arguments: argparse.Namespace) -> int:
    """Lines for a shell to evaluate."""
    cluster = HadoopCluster.load(root)
    values = {
        ATTACH_SECURE if cluster.settings.secure else ATTACH: str(cluster.layout.root),
        "TONY_RM_WEBAPP": ",".join(cluster.rm_webapp),
        "TONY_WEBHDFS": ",".join(cluster.webhdfs),
        "TONY_FS_DEFAULT": cluster.fs_default,
        "TONY_RM_SCHEDULER": ",".join(cluster.state.scheduler),
        "HADOOP_CONF_DIR": str(cluster.layout.conf("client")),
    }
    if cluster.settings.secure:
        values["KRB5_CONFIG"] = str(cluster.layout.krb5_conf)
    if cluster.settings.https:
        values["TONY_CA_FILE"] = str(cluster.layout.ca_file)
    for name, value in values.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _missing(root: Path, arguments: argparse.Namespace) -> int:
    """The tools that this machine lacks, one a line; 0 when it has them all."""
    missing = missing_tools(secure=arguments.secure)
    print("\n".join(missing) or "Nothing is missing.")
    return 1 if missing else 0


def _fetch(root: Path, arguments: argparse.Namespace) -> int:
    """The jars of a version into the user's cache, where they are not there yet."""
    if not is_here(arguments.version):
        print(f"Fetching Hadoop {arguments.version} from Maven Central, some 100 MB, about half a minute …", flush=True)
        resolve(arguments.version)
    node_classes(arguments.version)
    return 0


def _describe(cluster: HadoopCluster) -> int:
    """A summary for people; 0 when every daemon runs."""
    for name, value in cluster.state.summary(cluster.layout).items():
        if name == "conf":
            value = value["client"]
        print(f"  {name:12} {', '.join(value) if isinstance(value, list) else value}")
    memory = cluster.resident_bytes()
    for name, process in sorted(cluster.state.processes.items()):
        print(
            f"  {name:18} " + (f"pid {process.pid}, {memory[name] >> 20} MB" if process.alive() else "is not running")
        )
    return 0 if cluster.running() else 3


ACTS = {"start": _start, "stop": _stop, "status": _status, "env": _env, "missing": _missing, "fetch": _fetch}

if __name__ == "__main__":
    sys.exit(main())
