"""Diagnosis of a connection, in two rounds, and checks of security settings for a cluster with several users.

The first round finds the servers that answer. The second runs the checks that need them.

The list is the part of ``docs/security.md`` that the daemons' ``/conf`` shows. Further checks concern the staging
directory's permissions and the connection's ``network``.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import attrs

from tony_provider.cluster.checks.daemons import (
    ENCRYPTION,
    PAGES,
    QUEUE,
    SCHEDULER,
    SUBMISSION,
    TICKET,
    DaemonChecks,
    NameNodeChecks,
    ResourceManagerChecks,
    SchedulerChecks,
    ServerTls,
    check_encryption,
    check_ticket,
)
from tony_provider.cluster.checks.storage import (
    KEY_SERVER,
    OTHER_HDFS,
    RUNTIME,
    STAGING,
    check_key_server,
    check_other_hdfs,
    check_runtime,
    check_staging,
    check_stored_runtime,
    datanode_finder,
    is_stored,
)
from tony_provider.cluster.errors import ConnectionProblem
from tony_provider.cluster.findings import LATER, Check, Finding, Need, Report, ok, run_in_parallel, skipped, warning
from tony_provider.cluster.http import ANSWER_SECONDS, CONNECT_SECONDS, RequestOptions, Unanswered, json_of
from tony_provider.cluster.open_cluster import OpenCluster, open_cluster, yarn_rest
from tony_provider.cluster.settings import LocalSettings, Settings, YarnSettings
from tony_provider.cluster.yarn.credentials import Ticket, spnego_auth
from tony_provider.cluster.yarn.yarn_cluster import YarnCluster
from tony_provider.runtime.jobspec.model import Network
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageError

DaemonConfiguration = Mapping[str, str]
"""A daemon's configuration: values by name."""

_STORE = "yarn.resourcemanager.store.class"
_ZOOKEEPER_ACL = "yarn.resourcemanager.zk-acl"
_FULL_ACCESS = "world:anyone:rwcda"  # default of the ZooKeeper ACL
_LINUX_EXECUTOR = "LinuxContainerExecutor"
_EXECUTOR = "yarn.nodemanager.container-executor.class"
_LIMIT_USERS = "yarn.nodemanager.linux-container-executor.nonsecure-mode.limit-users"
_KERBEROS = "hadoop.security.authentication"
_AUTHORIZATION = "hadoop.security.authorization"


@attrs.frozen
class Hardening:
    """One recommended setting of a daemon."""

    name: str
    fits: Callable[[str, DaemonConfiguration], bool]  # whether a value is secure in a configuration
    otherwise: str  # the consequence of an insecure value
    advice: str


def _is(wanted: str) -> Callable[[str, DaemonConfiguration], bool]:
    return lambda value, _: value.strip().lower() == wanted.lower()


def _limits_users(value: str, settings: DaemonConfiguration) -> bool:
    """Return whether the value is false or has no effect, as with Kerberos or without the Linux executor."""
    has_kerberos = _is("kerberos")(settings.get(_KERBEROS, ""), settings)
    relevant = not has_kerberos and settings.get(_EXECUTOR, "").strip().endswith(_LINUX_EXECUTOR)
    return not relevant or _is("false")(value, settings)


def _store_is_closed(value: str, settings: DaemonConfiguration) -> bool:
    """Return whether ZooKeeper restricts access to the state store.

    Return True for another store, because ``/conf`` does not show the permissions of a directory.
    """
    if not value.endswith("ZKRMStateStore"):
        return True
    return settings.get(_ZOOKEEPER_ACL, _FULL_ACCESS) != _FULL_ACCESS


OF_RESOURCE_MANAGER = (
    Hardening(_KERBEROS, _is("kerberos"), "everybody is who they say they are", "set up Kerberos"),
    Hardening(
        "yarn.http.policy", _is("HTTPS_ONLY"), "secrets pass in clear at each submission", "set it to HTTPS_ONLY"
    ),
    Hardening(
        _EXECUTOR,
        lambda value, _: value.endswith(_LINUX_EXECUTOR),
        "the containers of all users run as one, and can read each other's",
        "set it to org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor",
    ),
    Hardening(_LIMIT_USERS, _limits_users, "the containers of all users run as one all the same", "set it to false"),
    Hardening("yarn.acl.enable", _is("true"), "everybody sees and kills every application", "set it to true"),
    Hardening(
        "yarn.admin.acl",
        lambda value, _: "*" not in value,
        "everybody is an administrator",
        "name the administrators in it",
    ),
    Hardening(
        "hadoop.rpc.protection",
        _is("privacy"),
        "application masters and the ResourceManager speak in clear",
        "set it to privacy",
    ),
    Hardening(
        "yarn.resourcemanager.proxy-user-privileges.enabled",
        _is("false"),
        "the ResourceManager may act for users",
        "set it to false, unless jobs outlive their first HDFS token",
    ),
    Hardening(
        _STORE,
        _store_is_closed,
        "whoever reaches ZooKeeper can read the secrets of applications",
        f"set {_ZOOKEEPER_ACL} to the ResourceManagers' own identity",
    ),
    Hardening(
        "yarn.nodemanager.delete.debug-delay-sec",
        _is("0"),
        "containers' directories stay on the nodes after their end",
        "set it to 0",
    ),
)

OF_NAMENODE = (
    Hardening(
        _AUTHORIZATION,
        _is("true"),
        "everybody who may ask reads the logs of NameNodes and DataNodes, with tokens of HDFS that others use",
        "set it to true, and name who may read them in dfs.cluster.administrators; close their directories, too",
    ),
    Hardening("dfs.http.policy", _is("HTTPS_ONLY"), "files and tokens pass in clear", "set it to HTTPS_ONLY"),
    Hardening("dfs.encrypt.data.transfer", _is("true"), "what DataNodes send over RPC is in clear", "set it to true"),
    Hardening("dfs.permissions.enabled", _is("true"), "everybody reads and writes every file", "set it to true"),
    Hardening(
        "dfs.namenode.acls.enabled", _is("true"), "outputs cannot be opened to some users alone", "set it to true"
    ),
)

HARDENING = "Hardening"
_OTHERS = 0o077  # permissions of group and others


def check_hardening(daemons: DaemonChecks, wanted: Sequence[Hardening]) -> Iterator[Finding]:
    """Check the configuration that an active daemon shows."""
    try:
        answer = json_of(daemons.way.send("GET", f"{daemons.active[0]}/conf?format=json"))
    except Unanswered as error:
        answer, why = {}, error.detail
    else:
        why = "it is shown to administrators only"
    properties = answer.get("properties")
    if not isinstance(properties, list) or not properties:
        yield skipped(HARDENING, f"the configuration of the {daemons.kind} cannot be looked at: {why}")
        return
    settings = {str(each.get("key")): str(each.get("value")) for each in properties if isinstance(each, dict)}
    for each in wanted:
        yield _judge(each, settings)


def _judge(wanted: Hardening, settings: dict[str, str]) -> Finding:
    what = f"{HARDENING} {wanted.name}"
    value = settings.get(wanted.name)
    if value is None:
        return skipped(what, "it is not in the configuration that was shown")
    if wanted.fits(value, settings):
        return ok(what, value or "empty")
    return warning(what, f"is {value!r}, so {wanted.otherwise}", wanted.advice)


def check_rights(storage: Storage, staging_dir: str, user: str) -> Iterator[Finding]:
    """Check the staging directory's owner, and that no other user may read it."""
    what = f"{HARDENING} of {staging_dir}"
    try:
        found = storage.status(staging_dir)
    except StorageError:
        yield skipped(what, "it is not there yet; the first job makes it, for its owner alone (0700)")
        return
    if found.owner and user and found.owner != user:
        advice = f"give it to {user}, or name another `staging_dir`"
        yield warning(what, f"it belongs to {found.owner}, who can change what the jobs of {user} run", advice)
    elif found.permission is not None and found.permission & _OTHERS:
        yield warning(what, f"its rights are {found.permission:04o}: others may look into it", "set them to 0700")
    else:
        yield ok(what, "its owner's alone")


def check_network(network: Network | None) -> Iterator[Finding]:
    """Check that the connection states who can reach the ports of jobs."""
    what = f"{HARDENING} network"
    if network is None:
        yield warning(
            what,
            "nobody has said who can reach the ports of jobs' processes, which frameworks mostly open to everybody",
            "see docs/security.md, then set `network` to isolated or trusted",
        )
    else:
        yield ok(what, network.value)


FIRST_SECONDS = 4.5  # time limit of the first round
ALL_SECONDS = 9.5  # time limit of both rounds


def diagnose(settings: Settings) -> Report:
    """Check everything that a job needs of the cluster, within 10 seconds even if servers are silent.

    Starts no application. Writes a small file to the staging directory and removes it. Raises ConnectionProblem if the
    settings are unusable.
    """
    if settings.yarn is not None:
        return _Yarn(settings, settings.yarn).report()
    opened = open_cluster(settings)
    checks = [
        Check(STAGING, lambda: check_staging(opened.storage, opened.staging_dir, None)),
        *([Check("Limits", partial(_limits, settings.local))] if settings.local is not None else []),
        Check(RUNTIME, lambda: check_runtime(settings)),
    ]
    return Report(host(), opened.cluster.user, str(settings.backend), run_in_parallel(checks, ALL_SECONDS))


def host() -> str:
    """Return this machine's name as users know it."""
    return socket.gethostname()


def _limits(limits: LocalSettings) -> Iterator[Finding]:
    detail = f"one job may have {limits.memory} MiB, {limits.vcores} vcores and {limits.gpus} GPUs of this host"
    yield ok("Limits", detail)


class _Yarn:
    """The checks of a connection to a YARN cluster, and the servers that have answered."""

    def __init__(self, settings: Settings, yarn: YarnSettings) -> None:
        self._settings = settings
        self._yarn = yarn
        self._tickets: list[Ticket] = []
        auth = spnego_auth() if yarn.kerberos else None
        identity = {"user.name": self._asked_user} if not yarn.kerberos else {}
        proxied = settings.proxy_user if yarn.kerberos else None
        of_managers = {**identity, **({"doAs": proxied} if proxied else {})}
        of_namenodes = {**identity, **({"doas": proxied} if proxied else {})}
        self._verify_hdfs = yarn.webhdfs.ca_file or yarn.webhdfs.verify
        self._managers = ResourceManagerChecks(RequestOptions(yarn.verify, yarn.trust_env, auth, of_managers))
        self._namenodes = NameNodeChecks(RequestOptions(self._verify_hdfs, False, auth, of_namenodes))

    @property
    def _asked_user(self) -> str:
        return self._settings.proxy_user or self._settings.user or ""

    @property
    def _user(self) -> str:
        if self._yarn.kerberos and not self._settings.proxy_user:
            return self._tickets[0].user if self._tickets else self._asked_user
        return self._asked_user

    def report(self) -> Report:
        findings: Iterable[Finding] = run_in_parallel(self._checks(), ALL_SECONDS, FIRST_SECONDS)
        for daemons in (self._managers, self._namenodes):
            findings = list(daemons.softened(findings))
        return Report(host(), self._user, str(self._settings.backend), list(findings))

    def _checks(self) -> list[Check]:
        """Return all checks. Checks with needs use shorter timeouts than jobs, see ``_narrowed``."""
        settings, yarn = self._settings, self._yarn
        managers, namenodes = self._managers, self._namenodes
        manager = Need("no ResourceManager is active", lambda: bool(managers.active))
        namenode = Need("no NameNode is active", lambda: bool(namenodes.active))
        file_system = Need(
            "its file system is the ResourceManager's default one, and none is active",
            lambda: bool(managers.active) or "://" in (settings.staging_dir or ""),
        )
        store = [namenode, file_system]
        login = None if settings.proxy_user else settings.user
        ticket = Check(TICKET, lambda: check_ticket(login, self._tickets))
        key_server = Check(KEY_SERVER, lambda: self._beside(check_key_server), store)
        other_hdfs = Check(OTHER_HDFS, lambda: self._beside(check_other_hdfs), store)
        stored_runtime = Check(RUNTIME, lambda: self._beside(check_stored_runtime), store)
        return [
            *([ticket] if yarn.kerberos else []),
            *managers.checks(yarn.resource_managers),
            *namenodes.checks(yarn.webhdfs.addresses),
            Check(ENCRYPTION, lambda: check_encryption(yarn)),
            Check(SUBMISSION, lambda: self._scheduler().submission(), [manager]),
            Check(QUEUE, lambda: self._scheduler().its_queue(), [manager]),
            Check(SCHEDULER, lambda: self._scheduler().addresses(), [manager]),
            Check(PAGES, lambda: self._scheduler().pages(), [manager]),
            Check(STAGING, lambda: self._with_store(self._staging), store),
            *([key_server] if yarn.kerberos else []),
            *([other_hdfs] if yarn.other_hdfs else []),
            *([stored_runtime] if is_stored(settings.runtime_archive) else []),
            Check(HARDENING, lambda: check_hardening(managers, OF_RESOURCE_MANAGER), [manager]),
            Check(HARDENING, lambda: check_hardening(namenodes, OF_NAMENODE), [namenode]),
            Check(HARDENING, lambda: check_network(settings.network), [LATER]),
            *[Check(each.what, each.check, [LATER]) for each in self._tls() if each.is_https],
            Check(RUNTIME, lambda: check_runtime(settings), [LATER]),
        ]

    def _scheduler(self) -> SchedulerChecks:
        rest = yarn_rest(self._narrowed(), self._user, self._settings.proxy_user)
        cluster = YarnCluster(rest, user=self._user, scheduler=self._yarn.scheduler)
        return SchedulerChecks(cluster, self._settings.queue)

    def _tls(self) -> Sequence[ServerTls]:
        yarn, unknown = self._yarn, self._yarn.nodes_ca_file is None
        return [
            *(ServerTls(each, yarn.verify, for_nodes=False) for each in yarn.resource_managers),
            *(ServerTls(each, self._verify_hdfs, for_nodes=unknown) for each in yarn.webhdfs.addresses),
        ]

    def _staging(self, opened: OpenCluster) -> Iterator[Finding]:
        finder = datanode_finder(self._namenodes.active[0], self._namenodes.way)
        yield from check_rights(opened.storage, opened.staging_dir, self._user)
        yield from check_staging(opened.storage, opened.staging_dir, finder)

    def _with_store(self, check: Callable[[OpenCluster], Iterator[Finding]]) -> Iterator[Finding]:
        with contextlib.closing(open_cluster(attrs.evolve(self._settings, yarn=self._narrowed()))) as opened:
            yield from check(opened)

    def _beside(self, check: Callable[[OpenCluster], Iterator[Finding]]) -> Iterator[Finding]:
        """Run a check if the store can be opened; otherwise the staging directory's check reports it."""
        with contextlib.suppress(ConnectionProblem):
            yield from self._with_store(check)

    def _narrowed(self) -> YarnSettings:
        """Return the connection's settings restricted to the servers that have answered."""
        webhdfs = attrs.evolve(
            self._yarn.webhdfs,
            addresses=self._namenodes.active or self._yarn.webhdfs.addresses,
            connect_timeout=CONNECT_SECONDS,
            response_timeout=ANSWER_SECONDS,
            stream_timeout=ANSWER_SECONDS,
            silence_timeout=ANSWER_SECONDS,
            timeout=ANSWER_SECONDS,
        )
        managers = self._managers.active or self._yarn.resource_managers
        return attrs.evolve(self._yarn, resource_managers=managers, webhdfs=webhdfs, timeout=ANSWER_SECONDS)
