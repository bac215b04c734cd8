"""A real Hive metastore beside a Kerberos cluster, with its own database (Derby), and tables in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.java import JVM_FLAGS
from tests.hadoop.ports import free_ports
from tests.hadoop.processes import Process, spawn, stop
from tests.hadoop.resolve import dependency, fetch, project_of
from tests.hadoop.settings import REALM
from tests.hadoop.tools import java_program
from tests.waiting import until

VERSION = "3.1.3"  # the newest that is one jar, with all that it needs on Maven Central
_HADOOP = "3.4.2"
_SECONDS = 90.0
_STARTED = "Started the new metaserver on port"
_LOG = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


@dataclass(frozen=True)
class Metastore:
    """A running metastore, and the jars that its Java clients need."""

    root: Path
    port: int
    jars: Path

    @property
    def address(self) -> str:
        return f"thrift://localhost:{self.port}"


def pom() -> str:
    """The metastore, with libraries that it takes from Hive and Hadoop."""
    hadoop = ("hadoop-common", "hadoop-hdfs", "hadoop-hdfs-client", "hadoop-mapreduce-client-core")
    return project_of(
        [
            dependency("org.apache.hive", "hive-standalone-metastore", VERSION),
            *(dependency("org.apache.hadoop", each, _HADOOP) for each in hadoop),
            dependency("commons-collections", "commons-collections", "3.2.2"),
        ]
    )


@contextmanager
def metastore(hadoop: HadoopCluster, root: Path) -> Iterator[Metastore]:
    """Run a metastore for a cluster with Kerberos, in an empty folder. Raises ClusterError, ResolveError."""
    jars = fetch(f"hive-metastore-{VERSION}", pom()) / "jars"
    (port,) = free_ports(1)
    running = Metastore(root, port, jars)
    (root / "metastore-site.xml").write_text(_site(hadoop, root))
    (root / "log4j2.properties").write_text(_LOG)
    log = root / "metastore.log"
    process = spawn(_command(running, hadoop), log=log, cwd=root, env={})
    try:
        until(lambda: _has_started(process, log), lambda: log.read_text()[-3000:], _SECONDS)
        yield running
    finally:
        stop([process], 5)


def _has_started(process: Process, log: Path) -> bool:
    if not process.alive():
        raise ClusterError(f"the metastore ended; its log ends with\n{log.read_text()[-3000:]}")
    return _STARTED in log.read_text()


def java(jars: Path, krb5_conf: Path, *class_path: Path) -> list[str]:
    """The command of a Java with Hive's and Hadoop's classes, up to its options."""
    places = ":".join([*map(str, class_path), f"{jars}/*"])
    return [str(java_program()), *JVM_FLAGS, "-Xmx400m", f"-Djava.security.krb5.conf={krb5_conf}", "-cp", places]


def _command(running: Metastore, hadoop: HadoopCluster) -> list[str]:
    root, layout = running.root, hadoop.layout
    program = java(running.jars, layout.krb5_conf, root, layout.conf("client"))
    log = f"-Dlog4j2.configurationFile={root}/log4j2.properties"
    return [*program, log, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(running.port)]


def _site(hadoop: HadoopCluster, root: Path) -> str:
    values = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={root}/database;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "metastore.schema.verification": "false",
        "metastore.warehouse.dir": f"file://{root}/warehouse",
        # The others are in jars of Hive itself, for its queries and its replication.
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        "metastore.sasl.enabled": "true",
        "metastore.kerberos.principal": f"hive/localhost@{REALM}",
        "metastore.kerberos.keytab.file": str(hadoop.layout.keytab("hive")),
    }
    properties = (
        f"<property><name>{each}</name><value>{escape(value)}</value></property>" for each, value in values.items()
    )
    return f"<configuration>{''.join(properties)}</configuration>"
