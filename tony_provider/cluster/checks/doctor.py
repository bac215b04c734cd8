"""Diagnosis of a connection, in two rounds: find the servers that answer, then run the checks that need them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
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
from tony_provider.cluster.checks.hardening import HARDENING, HardeningChecks, check_network, check_rights
from tony_provider.cluster.checks.servers import ServerTls, check_encryption
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
from tony_provider.cluster.findings import Check, Finding, Report, ok, problem, run_in_parallel, skipped, softened
from tony_provider.cluster.http import ANSWER_SECONDS, CONNECT_SECONDS, RequestOptions
from tony_provider.cluster.open_cluster import OpenCluster, open_cluster, yarn_rest
from tony_provider.cluster.settings import Settings, YarnSettings
from tony_provider.cluster.yarn.kerberos import Ticket, spnego_auth
from tony_provider.cluster.yarn.yarn_cluster import YarnCluster

FIRST_SECONDS = 4.5  # time limit of the first round
ALL_SECONDS = 9.5  # time limit of both rounds


def diagnose(settings: Settings) -> Report:
    """Check everything that a job needs of the cluster, within 10 seconds even if servers are silent.

    Starts no application. Writes a small file to the staging directory and removes it. Raises ConnectionProblem if the
    settings are unusable.
    """
    if settings.yarn is None:
        return _local(settings)
    return _Yarn(settings, settings.yarn).report()


def host() -> str:
    """Return this machine's name as users know it."""
    return socket.gethostname()


def _local(settings: Settings) -> Report:
    opened = open_cluster(settings)
    checks = [
        Check(STAGING, lambda: check_staging(opened.storage, opened.staging_dir, None)),
        Check("Limits", lambda: _limits(settings)),
        Check(RUNTIME, lambda: check_runtime(settings)),
    ]
    return Report(host(), opened.cluster.user, str(settings.backend), run_in_parallel(checks, ALL_SECONDS))


def _limits(settings: Settings) -> Iterator[Finding]:
    limits = settings.local
    if limits is not None:
        detail = f"one job may have {limits.memory} MiB, {limits.vcores} vcores and {limits.gpus} GPUs of this host"
        yield ok("Limits", detail)


class _Yarn:
    def __init__(self, settings: Settings, yarn: YarnSettings) -> None:
        self._settings = settings
        self._yarn = yarn
        self._tickets: list[Ticket] = []
        auth = spnego_auth() if yarn.kerberos else None
        identity = {"user.name": self._asked_user} if not yarn.kerberos else {}
        proxied = {"doAs": settings.proxy_user} if yarn.kerberos and settings.proxy_user else {}
        webhdfs = yarn.webhdfs
        self._managers = ResourceManagerChecks(
            RequestOptions(yarn.verify, yarn.trust_env, auth, {**identity, **proxied})
        )
        proxied = {"doas": proxied["doAs"]} if proxied else {}
        verify = webhdfs.ca_file or webhdfs.verify
        self._namenodes = NameNodeChecks(RequestOptions(verify, False, auth, {**identity, **proxied}))

    @property
    def _asked_user(self) -> str:
        return self._settings.proxy_user or self._settings.user or ""

    @property
    def _user(self) -> str:
        if self._yarn.kerberos and not self._settings.proxy_user:
            return self._tickets[0].user if self._tickets else self._asked_user
        return self._asked_user

    def report(self) -> Report:
        begun = time.monotonic()
        findings = [*self._first(), *check_encryption(self._yarn)]
        findings += self._second(ALL_SECONDS - (time.monotonic() - begun))
        return Report(host(), self._user, str(self._settings.backend), findings)

    def _first(self) -> Iterator[Finding]:
        managers, namenodes = self._yarn.resource_managers, self._yarn.webhdfs.addresses
        checks = [
            *self._ticket_checks(),
            *[_check("ResourceManager", address, self._managers) for address in managers],
            *[_check("NameNode", address, self._namenodes) for address in namenodes],
        ]
        tickets = len(checks) - len(managers) - len(namenodes)
        found = run_in_parallel(checks, FIRST_SECONDS)
        yield from found[:tickets]
        of_managers, of_namenodes = found[tickets : tickets + len(managers)], found[tickets + len(managers) :]
        # While one server is active, missing ones matter only after it fails, so they are warnings.
        yield from map(softened, of_managers) if self._managers.active else of_managers
        yield from self._managers.together()
        yield from map(softened, of_namenodes) if self._namenodes.active else of_namenodes
        yield from self._namenodes.together()

    def _ticket_checks(self) -> list[Check]:
        if not self._yarn.kerberos:
            return []
        login = None if self._settings.proxy_user else self._settings.user
        return [Check(TICKET, lambda: check_ticket(login, self._tickets))]

    def _second(self, seconds: float) -> list[Finding]:
        """Run the checks of the servers that have answered, with shorter timeouts than jobs use."""
        checks = [
            *self._scheduler_checks(),
            *self._store_checks(),
            *self._hardening_checks(),
            *self._tls_checks(),
            Check(RUNTIME, lambda: check_runtime(self._settings)),
        ]
        return run_in_parallel(checks, seconds)

    def _scheduler_checks(self) -> list[Check]:
        if not self._managers.active:
            why = "no ResourceManager is active"
            return [_skip(what, why) for what in (SUBMISSION, QUEUE, SCHEDULER, PAGES)]
        rest = yarn_rest(self._narrowed(), self._user, self._settings.proxy_user)
        cluster = YarnCluster(rest, user=self._user, scheduler=self._yarn.scheduler)
        scheduler = SchedulerChecks(cluster, self._settings.queue)
        return [
            Check(SUBMISSION, scheduler.submission),
            Check(QUEUE, scheduler.its_queue),
            Check(SCHEDULER, scheduler.addresses),
            Check(PAGES, scheduler.pages),
        ]

    def _store_checks(self) -> list[Check]:
        archive = self._settings.runtime_archive
        stored = is_stored(archive)
        if not self._namenodes.active:
            why = "no NameNode is active"
            return [_skip(STAGING, why), *([_skip(RUNTIME, why)] if stored else [])]
        if not self._managers.active and "://" not in (self._settings.staging_dir or ""):
            why = "its file system is the ResourceManager's default one, and none is active"
            return [_skip(STAGING, why), *([_skip(RUNTIME, why)] if stored else [])]
        beside = [Check(KEY_SERVER, lambda: self._beside(check_key_server))] if self._yarn.kerberos else []
        if self._yarn.other_hdfs:
            beside.append(Check(OTHER_HDFS, lambda: self._beside(check_other_hdfs)))
        return [Check(STAGING, self._staging), *beside, *([Check(RUNTIME, self._stored_runtime)] if stored else [])]

    def _hardening_checks(self) -> list[Check]:
        """Return hardening checks for servers that have answered; the others are already reported as problems."""
        checks = HardeningChecks(self._managers.way, self._namenodes.way)
        of_managers = [partial(checks.of_resource_manager, address) for address in self._managers.active[:1]]
        of_namenodes = [partial(checks.of_namenode, address) for address in self._namenodes.active[:1]]
        network = partial(check_network, self._settings.network)
        return [Check(HARDENING, check) for check in (*of_managers, *of_namenodes, network)]

    def _tls_checks(self) -> list[Check]:
        webhdfs, unknown = self._yarn.webhdfs, self._yarn.nodes_ca_file is None
        servers = [ServerTls(each, self._yarn.verify, for_nodes=False) for each in self._yarn.resource_managers]
        verify = webhdfs.ca_file or webhdfs.verify
        servers += [ServerTls(each, verify, for_nodes=unknown) for each in webhdfs.addresses]
        return [Check(each.what, each.check) for each in servers if each.is_https]

    def _staging(self) -> Iterator[Finding]:
        opened = self._opened()
        if isinstance(opened, Finding):
            yield opened
            return
        finder = datanode_finder(self._namenodes.active[0], self._namenodes.way)
        with contextlib.closing(opened):
            yield from check_rights(opened.storage, opened.staging_dir, self._user)
            yield from check_staging(opened.storage, opened.staging_dir, finder)

    def _beside(self, check: Callable[[OpenCluster], Iterator[Finding]]) -> Iterator[Finding]:
        opened = self._opened()
        if isinstance(opened, Finding):
            return  # the staging directory's check reports it
        with contextlib.closing(opened):
            yield from check(opened)

    def _stored_runtime(self) -> Iterator[Finding]:
        opened = self._opened()
        if isinstance(opened, Finding):
            return  # the staging directory's check reports it
        with contextlib.closing(opened):
            yield from check_stored_runtime(opened.storage, opened.staging_dir, self._settings.runtime_archive or "")

    def _opened(self) -> OpenCluster | Finding:
        try:
            return open_cluster(attrs.evolve(self._settings, yarn=self._narrowed()))
        except ConnectionProblem as error:
            return problem(STAGING, str(error), "")

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


def _check(kind: str, address: str, checker: ResourceManagerChecks | NameNodeChecks) -> Check:
    return Check(f"{kind} {address}", lambda: checker.check(address))


def _skip(what: str, why: str) -> Check:
    return Check(what, lambda: [skipped(what, why)])
