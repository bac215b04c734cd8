"""How each daemon's JVM is started."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from pathlib import Path

from tests.hadoop.config import Layout
from tests.hadoop.node_classes import node_classes
from tests.hadoop.settings import Settings
from tests.hadoop.tools import java_program

# Small and quick to start, rather than fast: a cluster shares its machine with the jobs that it runs.
JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    # Most of a start is loading thousands of classes: Hadoop's own need no proof, and have their memory at once.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-XX:MetaspaceSize=160m",
    "-Xms96m",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    # Hadoop reaches into Java's own classes by reflection, which Java 16 and newer refuse.
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.io", "java.net", "java.util", "java.nio")
    ),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
MAIN_CLASSES = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "kms": "org.apache.hadoop.crypto.key.kms.server.KMSWebServer",
    "httpfs": "org.apache.hadoop.fs.http.server.HttpFSServerWebServer",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
RM_ADMIN = "org.apache.hadoop.yarn.client.cli.RMAdminCLI"
CRYPTO_ADMIN = "org.apache.hadoop.hdfs.tools.CryptoAdmin"
HDFS_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
HEAP_MB = {"resourcemanager": 512}
SMALL_HEAP_MB = 256


@dataclass(frozen=True)
class Java:
    """Command lines and environment for the programs of one cluster."""

    jars: Path
    layout: Layout
    settings: Settings

    def daemon(self, name: str) -> list[str]:
        """The command of a daemon such as `nodemanager-2`."""
        kind = name.partition("-")[0]
        return self.command(name, MAIN_CLASSES[kind], heap_mb=HEAP_MB.get(kind, SMALL_HEAP_MB))

    def command(self, conf: str, main: str, *arguments: str, heap_mb: int = SMALL_HEAP_MB) -> list[str]:
        """Run a main class with the configuration folder called `conf`."""
        flags = [*JVM_FLAGS, f"-Xmx{heap_mb}m", f"-Djava.io.tmpdir={self.layout.data / 'tmp'}"]
        flags.append(f"-Djdk.net.hosts.file={self.layout.conf(conf) / 'hosts'}")
        if main == MAIN_CLASSES["datanode"]:  # as many as a real node has: a transfer that hangs blocks one
            flags.append("-Dio.netty.eventLoopThreads=32")
        if main == MAIN_CLASSES["kms"]:  # it insists on being told what it would find
            flags += [f"-Dkms.config.dir={self.layout.conf(conf)}", "-Dlog4j.configuration=log4j.properties"]
        if main == MAIN_CLASSES["httpfs"]:
            folders = {"home": self.layout.data, "config": self.layout.conf(conf), "log": self.layout.logs}
            flags += [f"-Dhttpfs.{name}.dir={folder}" for name, folder in folders.items()]
            flags.append(f"-Dhttpfs.temp.dir={self.layout.data / 'tmp'}")
        flags += [f"-Dhadoop.log.dir={self.layout.logs}", f"-Dyarn.log.dir={self.layout.logs}"]
        if self.settings.secure:
            flags.append(f"-Djava.security.krb5.conf={self.layout.krb5_conf}")
        class_path = [self.layout.conf(conf), self.jars, node_classes(self.settings.version), self.jars / "jars" / "*"]
        path = os.pathsep.join(map(str, class_path))
        return [str(java_program()), *flags, "-classpath", path, main, *arguments]

    def environment(self) -> dict[str, str]:
        program = java_program()
        home = Path(program).resolve().parent.parent if program else Path("/")
        return {
            # Containers get the same, see config.py.
            "PATH": self.settings.node_path,
            "LANG": "C.UTF-8",
            "JAVA_HOME": str(home),
            "HOME": str(Path.home()),
            "USER": getpass.getuser(),
        }
