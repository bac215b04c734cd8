"""Hadoop's configuration files for one cluster: who listens where, and the values that make it small and quick."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.hadoop import node_classes, pairs
from tests.hadoop.pairs import Properties
from tests.hadoop.settings import (
    LOOPBACK,
    ORDINARY_USERS,
    PROXY_USER,
    REALM,
    WEB_LOOPBACK,
    Addresses,
    DataNode,
    NameNode,
    NodeManager,
    Settings,
    groups_of,
)

NODE_LABEL = "gpu"
GPU = "yarn.io/gpu"
RATE = "example.com/rate"  # counted in Gi; each node has a few
NODE_RATE = 8
LOCALIZER_HEAP_MB = 128
# Of the whole cluster, in percent: (guaranteed, at most). `small` can never hold a large job.
QUEUES = {"default": (30, 100), "ml": (60, 100), "small": (10, 10)}
# Half a second after a queue lacks what is its own it is said which containers will be taken, and 4 s later they are.
PREEMPTION = {
    "yarn.resourcemanager.scheduler.monitor.enable": "true",
    "yarn.resourcemanager.scheduler.monitor.policies": (
        "org.apache.hadoop.yarn.server.resourcemanager.monitor.capacity.ProportionalCapacityPreemptionPolicy"
    ),
    "yarn.resourcemanager.monitor.capacity.preemption.monitoring_interval": "500",
    "yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill": "4000",
    # As much as is wanted, at once, and to the last container; by default it is a tenth of a cluster at a time.
    "yarn.resourcemanager.monitor.capacity.preemption.total_preemption_per_round": "1.0",
    "yarn.resourcemanager.monitor.capacity.preemption.natural_termination_factor": "1.0",
    "yarn.resourcemanager.monitor.capacity.preemption.max_ignored_over_capacity": "0.0",
}
# Keys are for everybody; but the private one decrypts for its owner only, and not for HDFS's own user, who is often
# kept out so. DataNodes then cannot serve what it has encrypted over WebHDFS: they decrypt as themselves.
PRIVATE_KEY, PRIVATE_KEY_OWNER = "private", ORDINARY_USERS[0]
_KEY_OPERATIONS = ("READ", "MANAGEMENT", "GENERATE_EEK", "DECRYPT_EEK")
KMS_ACLS = (
    {f"default.key.acl.{op}": "*" for op in _KEY_OPERATIONS}
    | {f"key.acl.{PRIVATE_KEY}.{op}": "*" for op in _KEY_OPERATIONS}
    | {f"key.acl.{PRIVATE_KEY}.DECRYPT_EEK": PRIVATE_KEY_OWNER}
)
LOG4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""


@dataclass(frozen=True)
class Layout:
    """The folders of one cluster below its root."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "cluster.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def entries(self) -> tuple[Path, ...]:
        """Everything that a cluster puts into its root."""
        draft = self.state.with_suffix(".draft")
        return self.root / "conf", self.data, self.kerberos, self.tls, self.logs, self.state, draft, self.lock

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def excluded(self) -> Path:
        """The hosts whose NodeManagers are to go, one a line."""
        return self.root / "conf" / "excluded-nodes"

    @property
    def topology(self) -> Path:
        """The rack of each node, one a line."""
        return self.root / "conf" / "topology"

    @property
    def kerberos(self) -> Path:
        return self.root / "kerberos"

    @property
    def krb5_conf(self) -> Path:
        return self.kerberos / "krb5.conf"

    @property
    def tls(self) -> Path:
        return self.root / "tls"

    @property
    def ca_file(self) -> Path:
        """PEM file of the authority that https servers are checked against."""
        return self.tls / "ca.pem"

    @property
    def keystore(self) -> Path:
        return self.tls / "server.p12"

    @property
    def truststore(self) -> Path:
        return self.tls / "trust.p12"

    @property
    def tls_password(self) -> Path:
        return self.tls / "password"

    def keytab(self, user: str) -> Path:
        return self.kerberos / f"{user}.keytab"

    def kerberos_environment(self, user: str) -> dict[str, str]:
        """The environment in which a program of MIT Kerberos (or linked to it) is this user, without kinit."""
        return os.environ | {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_CLIENT_KTNAME": f"FILE:{self.keytab(user)}",
            "KRB5CCNAME": f"FILE:{self.kerberos / f'{user}.ccache'}",
        }

    def conf(self, daemon: str) -> Path:
        return self.root / "conf" / daemon

    @property
    def container_executor(self) -> Path:
        """The program that NodeManagers begin containers by, where these run as their users."""
        return self.root / "conf" / "container-executor"

    @property
    def node_view(self) -> Path:
        return self.root / "conf" / "node-view"

    def log(self, daemon: str) -> Path:
        return self.logs / f"{daemon}.log"


@dataclass(frozen=True)
class Configuration:
    """Writes the configuration folders of a cluster: one for each daemon, and `client`."""

    settings: Settings
    addresses: Addresses
    layout: Layout

    def write_all(self) -> None:
        self._write("client", LOOPBACK)
        for daemon, namenode in self.addresses.named_namenodes:
            self._write(daemon, LOOPBACK, {"hdfs-site": self._namenode(daemon, namenode)})
        if self.addresses.other_namenode is not None:
            self._write("namenode-other", LOOPBACK, {"hdfs-site": self._other_namenode()})
        if self.settings.kms:
            self._write("kms", LOOPBACK, {"kms-site": self._kms(), "kms-acls": KMS_ACLS})
        if self.settings.httpfs:
            self._write("httpfs", LOOPBACK, {"httpfs-site": self._httpfs()})
        for number, datanode in enumerate(self.addresses.datanodes, 1):
            self._write(f"datanode-{number}", datanode.host, {"hdfs-site": self._datanode(number, datanode)})
        for number, manager in enumerate(self.addresses.resourcemanagers, 1):
            own = {"yarn.resourcemanager.ha.id": manager.name} if len(self.addresses.resourcemanagers) > 1 else {}
            self._write(f"resourcemanager-{number}", _host(manager.web), {"yarn-site": own})
        for number, node in enumerate(self.addresses.nodemanagers, 1):
            self._write(f"nodemanager-{number}", node.host, {"yarn-site": self._nodemanager(number, node)})
        self.layout.excluded.touch()
        racks = zip(self.addresses.nodemanagers, self.settings.racks, strict=False)
        self.layout.topology.write_text("".join(f"{node.host} {rack}\n" for node, rack in racks))

    def _write(self, daemon: str, host: str, own: dict[str, Properties] | None = None) -> None:
        """One folder: the cluster's values, under the daemon's own, under the caller's."""
        own = own or {}
        folder = self.layout.conf(daemon)
        folder.mkdir(parents=True, exist_ok=True)
        files = {
            "core-site": self._core(),
            "hdfs-site": self._hdfs(),
            "yarn-site": self._yarn(),
            "capacity-scheduler": self._queues(),
            "resource-types": {
                "yarn.resource-types": f"{GPU},{RATE}",
                f"yarn.resource-types.{RATE}.units": "Gi",
            },
            "node-resources": {
                f"yarn.nodemanager.resource-type.{GPU}": str(self.settings.node_gpus),
                f"yarn.nodemanager.resource-type.{RATE}": f"{NODE_RATE}Gi",
            },
        }
        if self.settings.https:
            files |= self._ssl()
        for name in sorted(files.keys() | own.keys() | self.settings.properties.keys()):
            values = files.get(name, {}) | own.get(name, {}) | self.settings.properties.get(name, {})
            path = folder / f"{name}.xml"
            path.touch(0o600 if name == "ssl-server" else 0o644)  # that has the key's password
            path.write_text(site_file(values))
        (folder / "log4j.properties").write_text(LOG4J)
        (folder / "hosts").write_text(self._hosts(host))

    def _hosts(self, host: str) -> str:
        """The JVM's name service: this machine's own name means the daemon's own loopback address.

        The ResourceManager writes the machine's name into tracking URLs, and sends proxied requests from its address;
        neither would be where it listens. Nothing depends on the machine's name or on DNS then.
        """
        others = {LOOPBACK, *WEB_LOOPBACK, *self.addresses.node_hosts} - {host}
        lines = [f"{host} {host} {socket.gethostname()}", *(f"{other} {other}" for other in sorted(others))]
        return "\n".join([*lines, f"{LOOPBACK} localhost", ""])

    def _ssl(self) -> dict[str, Properties]:
        """Where servers have their key, and whom they and Hadoop's own clients trust: JVMs of all users read that."""
        password = self.layout.tls_password.read_text()
        trusted = {"truststore": self.layout.truststore}
        files: dict[str, Properties] = {"ssl-server": {"ssl.server.keystore.keypassword": password}, "ssl-client": {}}
        for side, stores in (("server", {"keystore": self.layout.keystore, **trusted}), ("client", trusted)):
            for store, path in stores.items():
                for what, value in (("location", str(path)), ("password", password), ("type", "PKCS12")):
                    files[f"ssl-{side}"][f"ssl.{side}.{store}.{what}"] = value
        return files

    @property
    def _web(self) -> str:
        """The end of the name of a web address of YARN's."""
        return "webapp.https.address" if self.settings.https else "webapp.address"

    def _core(self) -> Properties:
        values = {
            "fs.defaultFS": pairs.default_file_system(self.addresses),
            "hadoop.tmp.dir": str(self.layout.data / "tmp"),
            # Our users are nobody on this machine: Hadoop would run `id` for them, again and again.
            "hadoop.user.group.static.mapping.overrides": ";".join(
                f"{user}={','.join(groups_of(user))}" for user in (*ORDINARY_USERS, "dr.who")
            )
            + ";hdfs=supergroup;yarn=hadoop;",
            f"hadoop.proxyuser.{PROXY_USER}.hosts": "*",
            f"hadoop.proxyuser.{PROXY_USER}.users": "*",
            **self._httpfs_user(),
            **self._metastore_user(),
            # Daemons start side by side: the one that came first looks for the others again soon.
            "ipc.client.connect.retry.interval": "200",
            "ipc.client.connect.max.retries": "50",
        }
        if self.settings.racks:
            values |= {
                "net.topology.node.switch.mapping.impl": "org.apache.hadoop.net.TableMapping",
                "net.topology.table.file.name": str(self.layout.topology),
            }
        if self.settings.kms:
            values["hadoop.security.key.provider.path"] = key_server(self.settings, self.addresses)
        return values | (self._secure_core() if self.settings.secure else {})

    def _httpfs_user(self) -> Properties:
        """HttpFS acts for its users at the NameNodes."""
        user = "hdfs" if self.settings.secure else getpass.getuser()
        return {f"hadoop.proxyuser.{user}.{what}": "*" for what in ("hosts", "users") if self.settings.httpfs}

    def _metastore_user(self) -> Properties:
        """A Hive metastore beside the cluster acts for its users at the NameNodes."""
        return {f"hadoop.proxyuser.hive.{what}": "*" for what in ("hosts", "users") if self.settings.secure}

    def _secure_core(self) -> Properties:
        return {
            "hadoop.security.authentication": "kerberos",
            "hadoop.rpc.protection": self.settings.rpc_protection,
            "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
            "hadoop.http.authentication.type": "kerberos",
            # Any HTTP/… principal of the keytab: the web addresses are not all one host.
            "hadoop.http.authentication.kerberos.principal": "*",
            "hadoop.http.authentication.kerberos.keytab": str(self.layout.keytab("HTTP")),
            "hadoop.http.authentication.signature.secret.file": str(self.layout.kerberos / "http-secret"),
            "hadoop.http.authentication.simple.anonymous.allowed": "false",
        }

    def _hdfs(self) -> Properties:
        values = {
            "dfs.replication": "1",
            "dfs.permissions.enabled": "true",
            "dfs.namenode.safemode.extension": "0",
            "dfs.heartbeat.interval": "1",
        }
        if self.settings.https:
            values["dfs.http.policy"] = "HTTPS_ONLY"
        values |= pairs.namenodes(self.addresses, self.layout.data, self.settings.scheme)
        return values | (self._secure_hdfs() if self.settings.secure else {})

    def _secure_hdfs(self) -> Properties:
        values = {
            "dfs.block.access.token.enable": "true",
            # DataNodes on ports that need no root; the name is Hadoop's own.
            "ignore.secure.ports.for.testing": "true",
            "dfs.web.authentication.kerberos.principal": "*",
            "dfs.web.authentication.kerberos.keytab": str(self.layout.keytab("HTTP")),
        }
        for daemon in ("namenode", "datanode"):
            values[f"dfs.{daemon}.kerberos.principal"] = f"hdfs/localhost@{REALM}"
            values[f"dfs.{daemon}.keytab.file"] = str(self.layout.keytab("hdfs"))
        return values

    def _namenode(self, daemon: str, namenode: NameNode) -> Properties:
        own = {"dfs.ha.namenode.id": namenode.name} if len(self.addresses.namenodes) > 1 else {}
        if self.addresses.other_namenode is not None:
            own["dfs.nameservice.id"] = pairs.NAMESERVICE
        return own | {"dfs.namenode.name.dir": f"file://{self.layout.data}/{daemon}"}

    def _other_namenode(self) -> Properties:
        folder = f"file://{self.layout.data}/namenode-other"
        return {"dfs.nameservice.id": pairs.OTHER_NAMESERVICE, "dfs.namenode.name.dir": folder}

    def _kms(self) -> Properties:
        host, _, port = self.addresses.kms.rpartition(":")
        values = {
            "hadoop.kms.http.host": host,
            "hadoop.kms.http.port": port,
            "hadoop.kms.ssl.enabled": "true" if self.settings.https else "false",
            "hadoop.kms.key.provider.uri": f"jceks://file@{self.layout.data}/kms.keystore",
            "hadoop.kms.authentication.type": "kerberos",
            "hadoop.kms.authentication.kerberos.principal": "*",
            "hadoop.kms.authentication.kerberos.keytab": str(self.layout.keytab("HTTP")),
        }
        # The ResourceManager gets tokens for nodes in users' names; those of HDFS come with one of the key server.
        for user in ("yarn", PROXY_USER):
            values |= {f"hadoop.kms.proxyuser.{user}.{what}": "*" for what in ("hosts", "users")}
        return values

    def _httpfs(self) -> Properties:
        host, _, port = self.addresses.httpfs.rpartition(":")
        values = {
            "httpfs.http.hostname": host,
            "httpfs.http.port": port,
            "httpfs.ssl.enabled": "true" if self.settings.https else "false",
            "httpfs.hadoop.config.dir": str(self.layout.conf("httpfs")),
            f"httpfs.proxyuser.{PROXY_USER}.hosts": "*",
            f"httpfs.proxyuser.{PROXY_USER}.users": "*",
        }
        if self.settings.secure:
            values |= {
                # As in core-site, over which HttpFS puts defaults of its own.
                **{name: value for name, value in self._secure_core().items() if ".http.authentication." in name},
                "httpfs.hadoop.authentication.type": "kerberos",
                "httpfs.hadoop.authentication.kerberos.principal": f"hdfs/localhost@{REALM}",
                "httpfs.hadoop.authentication.kerberos.keytab": str(self.layout.keytab("hdfs")),
            }
        return values

    def _datanode(self, number: int, datanode: DataNode) -> Properties:
        values = {
            "dfs.datanode.hostname": datanode.host,
            "dfs.datanode.address": datanode.data,
            f"dfs.datanode.{self.settings.scheme}.address": datanode.http,
            "dfs.datanode.ipc.address": datanode.ipc,
            "dfs.datanode.data.dir": f"file://{self.layout.data}/datanode-{number}",
        }
        if self.addresses.shares_no_datanode:
            is_last = number == len(self.addresses.datanodes)
            values["dfs.internal.nameservices"] = pairs.OTHER_NAMESERVICE if is_last else pairs.NAMESERVICE
        if not self.settings.secure:  # with Kerberos, Hadoop connects from the address of the principal
            values["hadoop.rpc.socket.factory.class.default"] = node_classes.OWN_ADDRESS
        return values

    def _yarn(self) -> Properties:
        values = {
            "yarn.resourcemanager.scheduler.class": (
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler"
            ),
            "yarn.scheduler.minimum-allocation-mb": "64",
            "yarn.scheduler.maximum-allocation-mb": str(self.settings.node_memory_mb),
            "yarn.scheduler.maximum-allocation-vcores": str(self.settings.node_vcores),
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "250",
            "yarn.resourcemanager.connect.retry-interval.ms": "250",
            "yarn.resourcemanager.nodes.exclude-path": str(self.layout.excluded),
            "yarn.resourcemanager.decommissioning-nodes-watcher.poll-interval-secs": "1",
            "yarn.resourcemanager.am.max-attempts": "4",
            "yarn.resourcemanager.recovery.enabled": "true",
            "yarn.resourcemanager.work-preserving-recovery.enabled": "true",
            "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "1000",
            "yarn.resourcemanager.store.class": (
                "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
            ),
            "yarn.resourcemanager.fs.state-store.uri": f"file://{self.layout.data}/rm-state",
            "yarn.node-labels.enabled": "true",
            "yarn.node-labels.fs-store.root-dir": f"file://{self.layout.data}/node-labels",
            # By default below /tmp, where clusters side by side would meet.
            "yarn.node-attribute.fs-store.root-dir": f"file://{self.layout.data}/node-attributes",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "true",
            # Hadoop 3 leaves memory to cgroups by default, also where it has none, and then looks away itself.
            "yarn.nodemanager.resource.memory.enforced": "false",
            "yarn.nodemanager.container-monitor.interval-ms": "1000",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME,LANG,TZ",
            # Containers' shells begin without the NodeManager's PATH and make one up: whitelisting comes too late.
            "yarn.nodemanager.admin-env": self._node_environment(),
            "yarn.nodemanager.delete.debug-delay-sec": "0",
            "yarn.nodemanager.log.retain-seconds": "3600",
            "yarn.nodemanager.resource.memory-mb": str(self.settings.node_memory_mb),
            "yarn.nodemanager.resource.cpu-vcores": str(self.settings.node_vcores),
            "yarn.log-aggregation-enable": "false",
            "yarn.resourcemanager.cluster-id": "tony-test",
            "yarn.resourcemanager.application-https.policy": self.settings.masters_https,
        }
        if self.settings.https:
            values["yarn.http.policy"] = "HTTPS_ONLY"
        values |= pairs.resourcemanagers(self.addresses, self._web)
        if self.settings.web_everywhere:
            webs = {each.web: f"0.0.0.0:{each.web.rpartition(':')[2]}" for each in self.addresses.resourcemanagers}
            values |= {name: webs[value] for name, value in values.items() if value in webs}
        if self.settings.preemption:
            values |= PREEMPTION
        if self.settings.expiry_seconds is not None:
            milliseconds = str(int(self.settings.expiry_seconds * 1000))
            values |= {f"yarn.{who}.liveness-monitor.expiry-interval-ms": milliseconds for who in ("nm", "am")}
        return values | (self._secure_yarn() if self.settings.secure else {})

    def _node_environment(self) -> str:
        """Of containers. Nodes of a secure cluster have a /etc/krb5.conf; these have one of the cluster's own."""
        variables = {"MALLOC_ARENA_MAX": "$MALLOC_ARENA_MAX", "PATH": self.settings.node_path}
        if self.settings.secure:
            variables["KRB5_CONFIG"] = str(self.layout.krb5_conf)
        return ",".join(f"{name}={value}" for name, value in variables.items())

    def _secure_yarn(self) -> Properties:
        values = {
            "yarn.acl.enable": "true",
            "yarn.admin.acl": f"yarn,{getpass.getuser()}",
            "yarn.resourcemanager.webapp.spnego-principal": "*",
            "yarn.resourcemanager.webapp.spnego-keytab-file": str(self.layout.keytab("HTTP")),
            "yarn.nodemanager.webapp.spnego-principal": "*",
            "yarn.nodemanager.webapp.spnego-keytab-file": str(self.layout.keytab("HTTP")),
        }
        for daemon in ("resourcemanager", "nodemanager"):
            values[f"yarn.{daemon}.principal"] = f"yarn/localhost@{REALM}"
            values[f"yarn.{daemon}.keytab"] = str(self.layout.keytab("yarn"))
        return values

    def _nodemanager(self, number: int, node: NodeManager) -> Properties:
        values = {
            "fs.AbstractFileSystem.file.impl": node_classes.NODE_DISK,
            "yarn.nodemanager.hostname": node.host,
            "yarn.nodemanager.address": node.rpc,
            "yarn.nodemanager.localizer.address": node.localizer,
            f"yarn.nodemanager.{self._web}": node.web,
            "yarn.nodemanager.local-dirs": f"{self.layout.data}/nodemanager-{number}",
            "yarn.nodemanager.log-dirs": f"{self.layout.logs}/containers-{number}",
        }
        if attributes := self.settings.node_attributes[number - 1 : number]:
            values |= {
                "yarn.nodemanager.node-attributes.provider": "config",
                "yarn.nodemanager.node-attributes.provider.configured-node-attributes": attributes[0],
            }
        if self.settings.node_recovery:
            values |= {
                "yarn.nodemanager.recovery.enabled": "true",
                "yarn.nodemanager.recovery.supervised": "true",  # also where it is told to end
                "yarn.nodemanager.recovery.dir": f"{self.layout.data}/nodemanager-{number}-recovery",
            }
        return values | (self._linux_executor() if self.settings.container_executor else {})

    def _linux_executor(self) -> Properties:
        """Also for the JVM that fetches a container's files as its user: it has none of the NodeManager's flags."""
        package = "org.apache.hadoop.yarn.server.nodemanager"
        flags = [f"-Xmx{LOCALIZER_HEAP_MB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += ["-XX:-UsePerfData", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]
        flags += ["-Djava.net.preferIPv4Stack=true", f"-Djava.security.krb5.conf={self.layout.krb5_conf}"]
        return {
            "yarn.nodemanager.container-executor.class": f"{package}.LinuxContainerExecutor",
            "yarn.nodemanager.linux-container-executor.path": str(self.layout.container_executor),
            "yarn.nodemanager.container-localizer.java.opts": " ".join(flags),
        }

    def _queues(self) -> Properties:
        base = "yarn.scheduler.capacity"
        values = {
            f"{base}.root.queues": ",".join(QUEUES),
            f"{base}.maximum-am-resource-percent": "0.9",
            f"{base}.resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
            f"{base}.root.accessible-node-labels": "*",
            f"{base}.root.accessible-node-labels.{NODE_LABEL}.capacity": "100",
        }
        if self.settings.secure:
            # A list of the root applies to every queue below it; submitting is open to all, looking is not.
            values[f"{base}.root.acl_administer_queue"] = f"yarn,{getpass.getuser()}"
        for queue, (guaranteed, at_most) in QUEUES.items():
            values |= {
                f"{base}.root.{queue}.capacity": str(guaranteed),
                f"{base}.root.{queue}.maximum-capacity": str(at_most),
                f"{base}.root.{queue}.user-limit-factor": "10",
                f"{base}.root.{queue}.state": "RUNNING",
                f"{base}.root.{queue}.accessible-node-labels": NODE_LABEL,
                f"{base}.root.{queue}.accessible-node-labels.{NODE_LABEL}.capacity": str(guaranteed),
                f"{base}.root.{queue}.accessible-node-labels.{NODE_LABEL}.maximum-capacity": str(at_most),
            }
        return values


def key_server(settings: Settings, addresses: Addresses) -> str:
    """The URI of the key management server."""
    return f"kms://{settings.scheme}@{addresses.kms}/kms"


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def site_file(values: Properties) -> str:
    """A configuration file of Hadoop."""
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in sorted(values.items())
    ]
    return "\n".join(['<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""])
