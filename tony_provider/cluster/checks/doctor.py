"""Diagnosis of a connection, in two rounds: find the servers that answer, then run the checks that need them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import attrs

from tony_provider.cluster.checks.daemons import (
    PAGES,
    QUEUE,
    SCHEDULER,
    SUBMISSION,
    TICKET,
    NameNodeChecks,
    ResourceManagerChecks,
    SchedulerChecks,
    check_ticket,
)
from tony_provider.cluster.checks.hardening import (
    HARDENING,
    OF_NAMENODE,
    OF_RESOURCE_MANAGER,
    check_hardening,
    check_network,
    check_rights,
)
from tony_provider.cluster.checks.servers import ENCRYPTION, ServerTls, check_encryption
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
from tony_provider.cluster.findings import LATER, Check, Finding, Need, Report, ok, run_in_parallel
from tony_provider.cluster.http import ANSWER_SECONDS, CONNECT_SECONDS, RequestOptions
from tony_provider.cluster.open_cluster import OpenCluster, open_cluster, yarn_rest
from tony_provider.cluster.settings import LocalSettings, Settings, YarnSettings
from tony_provider.cluster.yarn.kerberos import Ticket, spnego_auth
from tony_provider.cluster.yarn.yarn_cluster import YarnCluster

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
