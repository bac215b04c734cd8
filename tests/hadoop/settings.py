"""What a cluster is made of: the caller's choices, and the addresses that were found for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from tests.hadoop.ports import free_ports

DEFAULT_VERSION = "3.4.2"
LOOPBACK = "127.0.0.1"
# Proxied requests come from the ResourceManager's web address: one of its own makes them tell-able.
WEB_LOOPBACK = ("127.0.0.2", "127.0.0.3")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REALM = "TONY.TEST"
ORDINARY_USERS = ("alice", "bob", "airflow")
# Beside the one that all of them are in; nodes and Hadoop know the same.
GROUPS = {"reviewers": ("bob",)}
# May act for others (hadoop.proxyuser.*), as a scheduler's service account often may.
PROXY_USER = "airflow"


def groups_of(user: str) -> list[str]:
    """A user's groups, as Hadoop is to know them."""
    return ["users", *(name for name, members in GROUPS.items() if user in members)]


@dataclass(frozen=True)
class Settings:
    """What a caller may choose.

    - `version`: of Hadoop; 2.10.2, 3.3.6 and 3.4.2 are known to work.
    - `datanodes`, `nodemanagers`: how many of each; `namenodes`, `resourcemanagers`: 1, or 2 for a pair with manual
      failover.
    - `node_memory_mb` (MB), `node_vcores`, `node_gpus`: what each NodeManager offers.
    - `node_path`: the PATH of containers, to give nodes another Python, or none. By default that of the system, with
      nothing of the virtual environment that started the cluster.
    - `secure`: Kerberos for HDFS, YARN and HTTP, with a KDC of its own, and YARN's access lists on.
    - `container_executor`: containers run as their application's user, by LinuxContainerExecutor and a stand-in for its
      native program; on a secure cluster, by root only (see container_executor.py, node_view.py).
    - `node_recovery`: containers outlive their NodeManager, and the next one there knows them.
    - `https`: all web addresses (ResourceManagers, NodeManagers, NameNodes, DataNodes) speak https and nothing else,
      with certificates of an authority of the cluster's own, `Layout.ca_file`.
    - `masters_https`: whether YARN's proxy asks application masters over https, with certificates that YARN makes for
      them: NONE, LENIENT (over http, too) or STRICT; from Hadoop 3.3 on.
    - `web_everywhere`: the ResourceManagers say that their web address is any interface (0.0.0.0), as Hadoop's defaults
      do; masters reach them where they are otherwise on the web alone.
    - `rpc_protection`: SASL quality of a secure cluster: authentication, integrity or privacy.
    - `preemption`: a queue that has less than its share takes containers from those that have more, within seconds.
    - `expiry_seconds`: after which a silent NodeManager or ApplicationMaster is lost; by default YARN's 10 minutes.
    - `other_namenode`: beside a pair of NameNodes a third one, of another nameservice. It shares the only DataNode, or
      has the last one of several for itself.
    - `kms`: a key management server for encryption zones; on secure clusters of Hadoop 3.
    - `httpfs`: an HttpFS server beside the NameNodes; of Hadoop 3.
    - `racks`: of the NodeManagers, by their numbers, such as ("/left", "/left", "/right"); by default one for all.
    - `node_attributes`: of the NodeManagers, by their numbers, as YARN writes them: ("disk,STRING,ssd", "").
    - `properties`: Hadoop properties over ours, by file, such as
      {"yarn-site": {"yarn.resourcemanager.connect.retry-interval.ms": "500"}}.
    """

    version: str = DEFAULT_VERSION
    namenodes: int = 1
    datanodes: int = 1
    resourcemanagers: int = 1
    nodemanagers: int = 2
    node_memory_mb: int = 4096
    node_vcores: int = 4
    node_gpus: int = 2
    node_path: str = SYSTEM_PATH
    secure: bool = False
    container_executor: bool = False
    node_recovery: bool = False
    https: bool = False
    masters_https: str = "NONE"
    web_everywhere: bool = False
    rpc_protection: str = "authentication"
    preemption: bool = False
    expiry_seconds: float | None = None
    other_namenode: bool = False
    kms: bool = False
    httpfs: bool = False
    racks: tuple[str, ...] = ()
    node_attributes: tuple[str, ...] = ()
    properties: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rpc_protection not in ("authentication", "integrity", "privacy"):
            raise ValueError(f"rpc_protection is {self.rpc_protection!r}: authentication, integrity or privacy")
        if self.container_executor and not self.secure:
            # There it would run all containers as one local user, unless told otherwise.
            raise ValueError("container_executor is for a secure cluster")
        if self.masters_https not in ("NONE", "LENIENT", "STRICT"):
            raise ValueError(f"masters_https is {self.masters_https!r}: NONE, LENIENT or STRICT")
        for name in ("namenodes", "resourcemanagers"):
            if getattr(self, name) not in (1, 2):
                raise ValueError(f"{name} is {getattr(self, name)}: 1 or 2")
        if self.other_namenode and self.namenodes != 2:
            raise ValueError("other_namenode is beside a pair: namenodes=2")
        if self.kms and not self.secure:
            raise ValueError("kms is for secure clusters")

    @property
    def extra_artefacts(self) -> tuple[str, ...]:
        """Of Hadoop, beside those that every cluster needs."""
        wanted = {"hadoop-kms": self.kms, "hadoop-hdfs-httpfs": self.httpfs}
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    @property
    def scheme(self) -> str:
        """Of all web addresses."""
        return "https" if self.https else "http"


@dataclass(frozen=True)
class NameNode:
    """`name` is its id in a pair (nn1, nn2). `http` is its web address, over https where the cluster is."""

    name: str
    rpc: str
    http: str


@dataclass(frozen=True)
class DataNode:
    """Several listen on different loopback addresses, because the NameNode excludes DataNodes by address."""

    data: str
    http: str
    ipc: str

    @property
    def host(self) -> str:
        return self.data.rpartition(":")[0]


@dataclass(frozen=True)
class ResourceManager:
    """`name` is its id in a pair (rm1, rm2); the rest are host:port."""

    name: str
    client: str
    scheduler: str
    tracker: str
    admin: str
    web: str


@dataclass(frozen=True)
class NodeManager:
    """Each on a loopback address of its own, so that YARN takes them for different hosts."""

    host: str
    rpc: str
    localizer: str
    web: str


@dataclass(frozen=True)
class Addresses:
    """Where every daemon listens, as host:port."""

    namenodes: tuple[NameNode, ...]
    datanodes: tuple[DataNode, ...]
    resourcemanagers: tuple[ResourceManager, ...]
    nodemanagers: tuple[NodeManager, ...]
    kdc: str
    other_namenode: NameNode | None = None
    kms: str = ""
    httpfs: str = ""

    @property
    def shares_no_datanode(self) -> bool:
        """Whether the last DataNode is that of the other NameNode alone."""
        return self.other_namenode is not None and len(self.datanodes) > 1

    @property
    def node_hosts(self) -> set[str]:
        """The hosts of all NodeManagers and DataNodes."""
        return {node.host for node in self.nodemanagers} | {datanode.host for datanode in self.datanodes}

    @property
    def named_namenodes(self) -> list[tuple[str, NameNode]]:
        """With the names of their daemons: `namenode`, or `namenode-1` and `namenode-2`; never the other one."""
        pair = len(self.namenodes) > 1
        return [(f"namenode-{n}" if pair else "namenode", each) for n, each in enumerate(self.namenodes, 1)]

    @classmethod
    def free(cls, settings: Settings) -> Addresses:
        """Addresses free now. Whether they still are when a daemon binds, its start will show."""
        count = 2 * settings.namenodes + 3 * settings.datanodes + 5 * settings.resourcemanagers
        count += 2 * settings.other_namenode + settings.kms + settings.httpfs
        ports = iter(free_ports(count + 3 * settings.nodemanagers + 1))

        def at(host: str = LOOPBACK) -> str:
            return f"{host}:{next(ports)}"

        return cls(
            namenodes=tuple(NameNode(f"nn{n + 1}", rpc=at(), http=at()) for n in range(settings.namenodes)),
            datanodes=tuple(DataNode(data=at(host), http=at(host), ipc=at(host)) for host in _datanode_hosts(settings)),
            resourcemanagers=tuple(
                ResourceManager(
                    f"rm{n + 1}",
                    client=at(),
                    scheduler=at(WEB_LOOPBACK[n] if settings.web_everywhere else LOOPBACK),
                    tracker=at(),
                    admin=at(),
                    web=at(WEB_LOOPBACK[n]),
                )
                for n in range(settings.resourcemanagers)
            ),
            nodemanagers=tuple(
                NodeManager(host, rpc=at(host), localizer=at(host), web=at(host))
                for _, host in zip(range(settings.nodemanagers), _node_hosts(), strict=False)
            ),
            kdc=at(),
            # By a name, so that what goes by names and not by addresses is seen.
            other_namenode=NameNode("other", rpc=at("localhost"), http=at()) if settings.other_namenode else None,
            kms=at("localhost") if settings.kms else "",
            httpfs=at("localhost") if settings.httpfs else "",
        )


def _datanode_hosts(settings: Settings) -> list[str]:
    other = [LOOPBACK] if settings.other_namenode and settings.datanodes > 1 else []
    own = settings.datanodes - len(other)
    return ([LOOPBACK] if own == 1 else [f"127.0.2.{n}" for n in range(1, own + 1)]) + other


def _node_hosts() -> Iterator[str]:
    return (f"127.0.1.{n}" for n in count(1))
