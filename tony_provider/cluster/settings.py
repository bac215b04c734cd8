"""The checked settings of a tony connection: where the cluster is and how to use it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import attrs

from tony_provider.cluster import defaults
from tony_provider.cluster.policy import Policy
from tony_provider.cluster.presets import Presets
from tony_provider.runtime.application import GpuDealing, OtherHdfs
from tony_provider.runtime.spec.model import Memory, Network
from tony_provider.runtime.storage.webhdfs.config import WebHdfsConfig

NO_KEY_SERVER = "none"


class Backend(StrEnum):
    """The kinds of clusters that a connection can name."""

    YARN = "yarn"
    LOCAL = "local"


@attrs.frozen
class MasterKeytab:
    """A keytab that application masters get, so that nobody need bring their jobs newer tokens."""

    path: Path  # on the worker
    principal: str

    @property
    def user(self) -> str:
        """The principal's short name, by Hadoop's default rule: what stands before ``/`` or ``@``."""
        return self.principal.split("@")[0].split("/")[0]


@attrs.frozen
class YarnSettings:
    """How a YARN cluster and its HDFS are reached."""

    resource_managers: list[str]  # http(s)://host:port of each
    webhdfs: WebHdfsConfig
    kerberos: bool = False
    scheduler: list[str] = attrs.field(factory=list)  # host:port of each; empty: the ResourceManager says
    rm_principal: str | None = None  # None: the ResourceManager says
    verify: bool | str = True  # of https ResourceManagers: whether, or the PEM file to check them against
    trust_env: bool = False  # use the environment's proxy variables for REST
    timeout: float = defaults.CALL_SECONDS  # seconds for one call, with every retry and failover
    autoscaling: bool = False  # nodes are added where jobs wait for them
    insecure_http: bool = False  # send keys and tokens over plain http, too
    nodes_ca_file: str | None = None  # PEM file on the nodes that https NameNodes are checked against
    master_keytab: MasterKeytab | None = None
    tokens_renewed: bool = False  # somebody runs `airflow tony renew` regularly, for jobs that nobody waits for

    other_hdfs: list[OtherHdfs] = attrs.field(factory=list)  # beside the staging directory's
    key_server: str | None = None  # its URI, or NO_KEY_SERVER; None: as HDFS says

    @property
    def plain_addresses(self) -> list[str]:
        """Of a cluster with Kerberos, where jobs' keys and tokens would be read along; see ``plain_http.py``."""
        others = (address for each in self.other_hdfs for address in each.webhdfs.addresses)
        every = [*self.resource_managers, *self.webhdfs.addresses, *others] if self.kerberos else []
        return [address for address in every if address.startswith("http://")]

    @property
    def renews_tokens(self) -> bool:
        """Whether jobs get newer tokens of the store also where nobody waits for them."""
        return self.tokens_renewed or self.master_keytab is not None


@attrs.frozen
class LocalSettings:
    """The local backend's directory, and how much of this machine one application may have."""

    root: Path  # where the local cluster keeps its state
    memory: int  # MiB
    vcores: int
    gpus: int = 0


@attrs.frozen
class Settings:
    """All that a tony connection says, with its defaults filled in."""

    user: str | None  # whom jobs run as; None: whose Kerberos ticket it is
    proxy_user: str | None = None  # act for this user instead
    namespace: str = defaults.NAMESPACE  # keeps several Airflow installations on one cluster apart
    queue: str | None = None
    log_size: Memory | None = None  # of what a task prints on its node, in jobs that do not say it
    network: Network | None = None  # who reaches the ports of jobs that do not say it; None: nobody has looked
    staging_dir: str | None = None  # a URI, or a path of the cluster's default file system; None: /user/<user>/.tony
    runtime_archive: str | None = None  # a file on the worker, or a URI of the store; None: pack the worker's packages
    shared_dir: Path | None = None  # that all nodes have mounted; None: there is none
    shared_cache: str | None = None  # a directory of the store with environments for all users; None: there is none
    python: list[str] = attrs.field(factory=list)  # interpreters on the nodes to try first
    gpu_dealing: GpuDealing | None = None  # None: the nodes isolate GPUs, or nobody minds
    policy: Policy = attrs.field(factory=Policy)  # what may be asked for
    presets: Presets = attrs.field(factory=Presets)
    yarn: YarnSettings | None = None  # exactly one of yarn and local
    local: LocalSettings | None = None

    @property
    def backend(self) -> Backend:
        return Backend.YARN if self.yarn is not None else Backend.LOCAL
