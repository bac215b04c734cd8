"""Diagnosis of a connection: finds the servers that answer, then runs the checks that need these servers.

This module has the checks of the staging directory, of further HDFS clusters, of the key server and of the runtime.

It also checks the security of clusters with several users: the settings that ``docs/platform/harden.md`` recommends and
that daemons show at ``/conf``, the staging directory's permissions, and the connection's ``network``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

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
from tony_provider.cluster.environments.inspection import pythons_of_runtime
from tony_provider.cluster.errors import ClusterError, ConnectionProblem
from tony_provider.cluster.findings import (
    LATER,
    Check,
    Finding,
    Need,
    Report,
    ok,
    problem,
    run_in_parallel,
    skipped,
    warning,
)
from tony_provider.cluster.http import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    RequestOptions,
    Unanswered,
    host_and_port,
    json_of,
)
from tony_provider.cluster.open_cluster import OpenCluster, open_cluster, yarn_rest
from tony_provider.cluster.settings import LocalSettings, Settings, YarnSettings
from tony_provider.cluster.sources import in_store
from tony_provider.cluster.yarn.credentials import Ticket, http_auth
from tony_provider.cluster.yarn.yarn_cluster import YarnCluster
from tony_provider.runtime.common.python_packages import version_text
from tony_provider.runtime.jobspec.model import Network
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, read_bytes, temporary_name
from tony_provider.runtime.storage.errors import StorageError, StorageNotEmpty

STAGING = "Staging directory"
DATANODE = "DataNode"
_CONTENT = b"Written by a check of a tony connection; it may be removed.\n"

FindDataNode = Callable[[str], str | None]

_ADVICE = "grant the user write access, or set another `staging_dir` in the connection"


def check_staging(storage: Storage, staging_dir: str, find_datanode: FindDataNode | None) -> Iterator[Finding]:
    """Check the staging directory: write a small file, read it back, and remove it.

    :param find_datanode: function that returns the address of the DataNode that would store a URI, or None if the
        NameNode names no DataNode. The argument is None for a store without DataNodes.
    """
    what = f"{STAGING} {staging_dir}"
    directory = uris.join(staging_dir, temporary_name())
    made = _missing(storage, staging_dir)
    try:
        storage.make_directories(directory)
        if find_datanode is not None:
            address = find_datanode(uris.join(directory, "where"))
            if found := _unreachable(address):
                yield found
                return
            yield ok(f"{DATANODE} {address}", "reachable")
        file = uris.join(directory, "check")
        storage.write(file, _CONTENT)
        if read_bytes(storage, file) != _CONTENT:
            yield problem(what, "a file was read with other content than was written", "check the health of the store")
            return
        yield ok(what, "a file was written, read and removed")
    except StorageError as error:
        yield problem(what, str(error), "" if error.advice else _ADVICE)
    finally:
        _remove(storage, directory, made)


def _missing(storage: Storage, uri: str) -> list[str]:
    """Return the URI and its parent directories that do not exist, the innermost first."""
    missing = []
    while uri != uris.parent(uri) and not storage.exists(uri):
        missing.append(uri)
        uri = uris.parent(uri)
    return missing


def _remove(storage: Storage, directory: str, made: list[str]) -> None:
    with contextlib.suppress(StorageError):
        storage.remove(directory, recursive=True)
        for each in made:
            with contextlib.suppress(StorageNotEmpty):  # a job uses this directory by now
                storage.remove(each)


def datanode_finder(namenode: str, way: RequestOptions) -> FindDataNode:
    """Return a function that queries the NameNode for the DataNode that would store a file, but creates no file."""

    def find(uri: str) -> str | None:
        path = quote(uris.parse(uri).path)
        response = way.send("PUT", f"{namenode}/webhdfs/v1{path}?op=CREATE")
        location = urlsplit(response.headers.get("Location", ""))
        if not location.hostname:
            return None
        return f"{location.scheme}://{location.netloc}"

    return find


def _unreachable(address: str | None) -> Finding | None:
    advice = "the NameNode redirects to it: this host must resolve the DataNodes' names and reach their HTTP ports"
    if address is None:
        return problem(DATANODE, "the NameNode names no DataNode", "check that DataNodes run: hdfs dfsadmin -report")
    host, port = host_and_port(address)
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return None
    except socket.gaierror:
        why = f"cannot resolve host {host!r}"
    except TimeoutError:
        why = f"no connection within {CONNECT_SECONDS:g} s"
    except OSError as error:
        why = f"it cannot be reached: {error.strerror}"
    return problem(f"{DATANODE} {address}", why, advice)


OTHER_HDFS = "Other HDFS"
KEY_SERVER = "Key server"


def check_other_hdfs(opened: OpenCluster) -> Iterator[Finding]:
    """Check that each HDFS in ``other_hdfs`` answers. A failure is a warning, because other jobs can run."""
    for each in opened.other_hdfs:
        what = f"{OTHER_HDFS} {each.name}"
        try:
            opened.storage.status(f"hdfs://{each.name}/")
            yield ok(what, "it answers")
        except StorageError as error:
            yield warning(what, str(error), "check its entry in the connection's `other_hdfs`")


def check_key_server(opened: OpenCluster) -> Iterator[Finding]:
    """Check that the key server issues a token. Cancel the token.

    A failure is a warning, because jobs without encryption zones still run.
    """
    if opened.tokens is None:
        return
    try:
        if uri := opened.tokens.try_key_server():
            yield ok(f"{KEY_SERVER} {uri}", "it issued a token")
    except (StorageError, ClusterError) as error:
        yield warning(KEY_SERVER, str(error), "set `key_server` in the connection: its URI, or `none`")


METASTORE = "Hive metastore"


def check_metastore(opened: OpenCluster) -> Iterator[Finding]:
    """Check that the Hive metastore answers. A failure is a warning, because other jobs can run."""
    if opened.metastore is None:
        return
    try:
        opened.metastore.check()
        yield ok(f"{METASTORE} {opened.metastore.name}", "it answers")
    except StorageError as error:
        yield warning(METASTORE, str(error), "")


RUNTIME = "Runtime"
_BUILD = "build one: airflow tony runtime build --python <versions of the nodes>"


def check_runtime(settings: Settings) -> Iterator[Finding]:
    """Check the runtime on this host, without inspecting the nodes."""
    archive = settings.runtime_archive
    if archive is None:
        version = version_text(sys.version_info[:2])
        yield ok(RUNTIME, f"jobs use this host's own packages, for Python {version}; no node was checked")
    elif not is_stored(archive):
        yield _archive(Path(archive.removeprefix("file://")))
    if settings.local is not None:
        yield from _interpreters(settings.python)


def check_stored_runtime(opened: OpenCluster) -> Iterator[Finding]:
    """Check that the connection's runtime archive exists on the store."""
    archive, staging_dir = opened.settings.runtime_archive or "", opened.staging_dir
    what = f"{RUNTIME} {archive}"
    if not in_store(archive, staging_dir):
        advice = "copy it there, or name a file on the worker"
        yield problem(what, f"it is in another store than the staging directory ({uris.scheme(staging_dir)})", advice)
    elif not opened.storage.exists(archive):
        yield problem(what, "it does not exist", _BUILD)
    else:
        yield ok(what, "it exists; its contents were not checked")


def is_stored(archive: str | None) -> bool:
    """Return whether the connection's runtime archive is a URI of the store, rather than a file of the worker."""
    return archive is not None and "://" in archive and not archive.startswith("file://")


def _archive(path: Path) -> Finding:
    what = f"{RUNTIME} {path}"
    try:
        with path.open("rb") as file:
            versions = pythons_of_runtime(file).versions
    except FileNotFoundError:
        return problem(what, "it is not on this host", _BUILD)
    except (OSError, zipfile.BadZipFile) as error:
        return problem(what, f"it cannot be read ({error})", _BUILD)
    if not versions:
        return problem(what, "it is not a runtime archive", _BUILD)
    return ok(what, f"for Python {', '.join(map(version_text, sorted(versions)))}; no node was checked")


def _interpreters(pythons: list[str]) -> Iterator[Finding]:
    for python in pythons:
        what = f"Python {python}"
        if os.access(python, os.X_OK):
            yield ok(what, "it exists")
        else:
            yield problem(what, "it does not exist, or is not executable", "correct `python` in the connection")


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
    fits: Callable[[str, DaemonConfiguration], bool]  # whether a value is secure, given the daemon's other settings
    otherwise: str  # the consequence of an insecure value
    advice: str


def _is(wanted: str) -> Callable[[str, DaemonConfiguration], bool]:
    return lambda value, _: value.strip().lower() == wanted.lower()


def _limits_users(value: str, settings: DaemonConfiguration) -> bool:
    """Return whether the value is false, or has no effect because of Kerberos or another container executor."""
    has_kerberos = _is("kerberos")(settings.get(_KERBEROS, ""), settings)
    relevant = not has_kerberos and settings.get(_EXECUTOR, "").strip().endswith(_LINUX_EXECUTOR)
    return not relevant or _is("false")(value, settings)


def _store_is_closed(value: str, settings: DaemonConfiguration) -> bool:
    """Return whether access to the ResourceManager's state store in ZooKeeper is restricted.

    Return True for a store in a directory, because ``/conf`` does not show permissions.
    """
    if not value.endswith("ZKRMStateStore"):
        return True
    return settings.get(_ZOOKEEPER_ACL, _FULL_ACCESS) != _FULL_ACCESS


OF_RESOURCE_MANAGER = (
    Hardening(_KERBEROS, _is("kerberos"), "users are not authenticated", "set up Kerberos"),
    Hardening(
        "yarn.http.policy", _is("HTTPS_ONLY"), "each submission sends secrets unencrypted", "set it to HTTPS_ONLY"
    ),
    Hardening(
        _EXECUTOR,
        lambda value, _: value.endswith(_LINUX_EXECUTOR),
        "the containers of all users run as the same system user, and can read each other's files",
        "set it to org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor",
    ),
    Hardening(
        _LIMIT_USERS, _limits_users, "the containers of all users still run as the same system user", "set it to false"
    ),
    Hardening("yarn.acl.enable", _is("true"), "every user can view and kill every application", "set it to true"),
    Hardening(
        "yarn.admin.acl",
        lambda value, _: "*" not in value,
        "every user is an administrator",
        "list only the administrators in it",
    ),
    Hardening(
        "hadoop.rpc.protection",
        _is("privacy"),
        "application masters and the ResourceManager communicate unencrypted",
        "set it to privacy",
    ),
    Hardening(
        "yarn.resourcemanager.proxy-user-privileges.enabled",
        _is("false"),
        "the ResourceManager may impersonate users",
        "set it to false, unless jobs outlive their first HDFS token",
    ),
    Hardening(
        _STORE,
        _store_is_closed,
        "every client of ZooKeeper can read the secrets of applications",
        f"set {_ZOOKEEPER_ACL} to the ResourceManagers' own identity",
    ),
    Hardening(
        "yarn.nodemanager.delete.debug-delay-sec",
        _is("0"),
        "containers' directories stay on the nodes after the containers have ended",
        "set it to 0",
    ),
)

OF_NAMENODE = (
    Hardening(
        _AUTHORIZATION,
        _is("true"),
        "every user can read the logs of NameNodes and DataNodes, which contain other users' HDFS tokens",
        "set it to true, list their readers in dfs.cluster.administrators, and restrict the log directories",
    ),
    Hardening("dfs.http.policy", _is("HTTPS_ONLY"), "files and tokens are sent unencrypted", "set it to HTTPS_ONLY"),
    Hardening("dfs.encrypt.data.transfer", _is("true"), "DataNodes transfer data unencrypted", "set it to true"),
    Hardening("dfs.permissions.enabled", _is("true"), "every user can read and write every file", "set it to true"),
    Hardening(
        "dfs.namenode.acls.enabled", _is("true"), "outputs cannot be shared with individual users", "set it to true"
    ),
)

HARDENING = "Hardening"
_OTHERS = 0o077  # permissions of group and others


def check_hardening(daemons: DaemonChecks, wanted: Sequence[Hardening]) -> Iterator[Finding]:
    """Compare the configuration that an active daemon shows with the recommended settings."""
    try:
        answer = json_of(daemons.way.send("GET", f"{daemons.active[0]}/conf?format=json"))
    except Unanswered as error:
        answer, why = {}, error.detail
    else:
        why = "it is shown to administrators only"
    properties = answer.get("properties")
    if not isinstance(properties, list) or not properties:
        yield skipped(HARDENING, f"cannot read the configuration of the {daemons.kind}: {why}")
        return
    settings = {str(each.get("key")): str(each.get("value")) for each in properties if isinstance(each, dict)}
    for each in wanted:
        yield _judge(each, settings)


def _judge(wanted: Hardening, settings: dict[str, str]) -> Finding:
    what = f"{HARDENING} {wanted.name}"
    value = settings.get(wanted.name)
    if value is None:
        return skipped(what, "the configuration that the daemon shows does not include it")
    if wanted.fits(value, settings):
        return ok(what, value or "empty")
    return warning(what, f"is {value!r}, so {wanted.otherwise}", wanted.advice)


def check_rights(storage: Storage, staging_dir: str, user: str) -> Iterator[Finding]:
    """Check the staging directory's owner, and that no other user may read it."""
    what = f"{HARDENING} of {staging_dir}"
    try:
        found = storage.status(staging_dir)
    except StorageError:
        yield skipped(what, "it does not exist yet; the first job creates it with mode 0700 (owner only)")
        return
    if found.owner and user and found.owner != user:
        advice = f"change its owner to {user}, or set another `staging_dir`"
        yield warning(what, f"it belongs to {found.owner}, who can change what the jobs of {user} run", advice)
    elif found.permission is not None and found.permission & _OTHERS:
        yield warning(what, f"its mode is {found.permission:04o}: other users have access", "set its mode to 0700")
    else:
        yield ok(what, "only its owner has access")


def check_network(network: Network | None) -> Iterator[Finding]:
    """Check that the connection states who can reach the ports of jobs."""
    what = f"{HARDENING} network"
    if network is None:
        yield warning(
            what,
            "it is unknown who can reach the ports of jobs' processes; most frameworks accept every client there",
            'see the guide "Secure jobs on a shared cluster", then set `network` to isolated or trusted',
        )
    else:
        yield ok(what, network.value)


FIRST_SECONDS = 4.5  # time limit of the checks that find the servers
ALL_SECONDS = 9.5  # time limit of all checks


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
    detail = (
        f"limits of one job: {limits.memory} MiB, {limits.vcores} vcores (may share processors), {limits.gpus} GPUs"
    )
    yield ok("Limits", detail)


class _Yarn:
    """Checks a connection to a YARN cluster, and records which servers have answered."""

    def __init__(self, settings: Settings, yarn: YarnSettings) -> None:
        self._settings = settings
        self._yarn = yarn
        self._tickets: list[Ticket] = []
        auth = http_auth(yarn)
        login = auth, yarn.gateway is not None
        identity = {} if auth else {"user.name": self._asked_user}
        proxied = settings.proxy_user if yarn.kerberos else None
        of_managers = {**identity, **({"doAs": proxied} if proxied else {})}
        of_namenodes = {**identity, **({"doas": proxied} if proxied else {})}
        self._verify_hdfs = yarn.webhdfs.ca_file or yarn.webhdfs.verify
        self._managers = ResourceManagerChecks(RequestOptions(yarn.verify, yarn.trust_env, *login, of_managers))
        self._namenodes = NameNodeChecks(RequestOptions(self._verify_hdfs, False, *login, of_namenodes))

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
            "its file system is the ResourceManager's default, and no ResourceManager is active",
            lambda: bool(managers.active) or "://" in (settings.staging_dir or ""),
        )
        store = [namenode, file_system]
        login = None if settings.proxy_user else settings.user
        has_tickets = yarn.kerberos and not yarn.gateway
        ticket = Check(TICKET, lambda: check_ticket(login, self._tickets))
        key_server = Check(KEY_SERVER, lambda: self._beside(check_key_server), store)
        other_hdfs = Check(OTHER_HDFS, lambda: self._beside(check_other_hdfs), store)
        metastore = Check(METASTORE, lambda: self._beside(check_metastore), store)
        stored_runtime = Check(RUNTIME, lambda: self._beside(check_stored_runtime), store)
        return [
            *([ticket] if has_tickets else []),
            *managers.checks(yarn.resource_managers),
            *namenodes.checks(yarn.webhdfs.addresses),
            Check(ENCRYPTION, lambda: check_encryption(yarn)),
            Check(SUBMISSION, lambda: self._scheduler().submission(), [manager]),
            Check(QUEUE, lambda: self._scheduler().its_queue(), [manager]),
            Check(SCHEDULER, lambda: self._scheduler().addresses(), [manager]),
            Check(PAGES, lambda: self._scheduler().pages(), [manager]),
            Check(STAGING, lambda: self._with_store(self._staging), store),
            *([key_server] if has_tickets else []),
            *([other_hdfs] if yarn.other_hdfs else []),
            *([metastore] if yarn.hive_metastore else []),
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
        yarn = self._yarn
        unknown = yarn.nodes_ca_file is None and not yarn.nodes_webhdfs
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
        """Run a check if the store can be opened. Otherwise, only the staging directory's check reports the problem."""
        with contextlib.suppress(ConnectionProblem):
            yield from self._with_store(check)

    def _narrowed(self) -> YarnSettings:
        """Return the connection's settings, limited to the servers that have answered, with short timeouts."""
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
