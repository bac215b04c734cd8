"""Checks of the servers that a connection names, for its diagnosis.

The checks concern connections and TLS, Kerberos, ResourceManagers, NameNodes, the scheduler and queue access.

Before a submission, ``expect_servers`` reports a refused connection within seconds, because the address is often wrong.
Calls for a running job wait longer, because then a failover is the more likely cause.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import attrs
import requests
from cryptography import x509
from requests.utils import get_environ_proxies

from tony_provider.cluster.checks.job_checks import HTTPS_REMEDY
from tony_provider.cluster.errors import (
    ClusterAuthError,
    ClusterError,
    ClusterUnreachable,
    ConfigurationHidden,
    ConnectionProblem,
    StagingFailed,
)
from tony_provider.cluster.findings import LATER, Check, Finding, ok, problem, softened, warning
from tony_provider.cluster.http import (
    CONNECT_SECONDS,
    RequestOptions,
    Unanswered,
    asks_for_kerberos,
    describe_server,
    host_and_port,
    json_of,
)
from tony_provider.cluster.settings import YarnSettings
from tony_provider.cluster.yarn.cluster_view import Queue, find_queue, upwards
from tony_provider.cluster.yarn.credentials import Ticket, ticket
from tony_provider.cluster.yarn.rest import (
    GATEWAY_REMEDY,
    is_refused_by_gateway,
    refused_by_gateway,
    rest_url,
    said_exception,
)
from tony_provider.cluster.yarn.yarn_cluster import YarnCluster
from tony_provider.runtime.common.clock import server_clock_ahead
from tony_provider.runtime.common.concurrency import run_in_threads
from tony_provider.runtime.hadoop.gss import reason
from tony_provider.runtime.hadoop.yarn_records import AccessList

TIMEOUT = 10.0  # seconds to wait for a server to start, if all servers refuse connections
_CONNECT_SECONDS = 2.0  # seconds to connect; a slower server passes, because later calls have longer timeouts
_PAUSE = 0.5  # seconds before all servers are tried again


def expect_servers(yarn: YarnSettings, timeout: float = TIMEOUT) -> None:
    """Check that ResourceManagers and NameNodes accept connections. Blocks for little more than ``timeout`` seconds.

    A server fails the check if it refuses connections or its name has no address. A server that does not respond
    passes. Raises ClusterUnreachable if all ResourceManagers fail, and StagingFailed if all NameNodes fail.
    """
    deadline = time.monotonic() + timeout
    managers = [address for address in yarn.resource_managers if not _is_behind_proxy(address, yarn)]
    if len(managers) == len(yarn.resource_managers):
        _expect("ResourceManager", managers, deadline, timeout, ClusterUnreachable)
    _expect("NameNode", yarn.webhdfs.addresses, deadline, timeout, StagingFailed)


def expect_store(yarn: YarnSettings, timeout: float) -> None:
    """Check that a NameNode accepts connections, like ``expect_servers``. Raises StagingFailed."""
    _expect("NameNode", yarn.webhdfs.addresses, time.monotonic() + timeout, timeout, StagingFailed)


def _is_behind_proxy(address: str, yarn: YarnSettings) -> bool:
    return yarn.trust_env and bool(get_environ_proxies(address))


def _expect(kind: str, addresses: Sequence[str], deadline: float, timeout: float, error: type[ClusterError]) -> None:
    while all(refusals := _refusals(addresses)):
        if time.monotonic() + _PAUSE >= deadline:
            raise error(
                f"no {kind} accepts connections: {'; '.join(refusals)} (for {timeout:g} s); check the addresses in the "
                "tony connection, and that the server runs"
            )
        time.sleep(_PAUSE)


def _refusals(addresses: Sequence[str]) -> list[str]:
    """Connect to each address in a separate thread, because name resolution has no deadline. See ``_refusal``."""
    calls = run_in_threads([partial(_refusal, address) for address in addresses], _CONNECT_SECONDS, "tony-knock")
    return [call.result() if call.done() else "" for call in calls]


def _refusal(address: str) -> str:
    """Return why no server accepts connections at an address, or an empty string if that is not certain."""
    host, port = host_and_port(address)
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except socket.gaierror:
        return f"cannot resolve host {host!r}"
    except ConnectionRefusedError:
        return f"nothing listens on port {port} of {host}"
    except (OSError, UnicodeError):
        pass  # a timeout or a network error, which may be temporary, or a host name that DNS does not allow
    return ""


ENCRYPTION = "Encryption"
_SOON = datetime.timedelta(days=30)


def check_encryption(yarn: YarnSettings) -> Iterator[Finding]:
    """Check that secrets are not sent over plain http. Contacts no server."""
    plain = yarn.plain_addresses
    if plain and yarn.insecure_http:
        detail = f"jobs' keys, secrets and HDFS tokens are sent to {', '.join(plain)} unencrypted"
        yield warning(ENCRYPTION, detail, "set their https addresses, and remove `insecure_http`")
    elif plain:
        yield problem(
            ENCRYPTION, f"{', '.join(plain)}: plain http with Kerberos, so submissions are refused", HTTPS_REMEDY
        )


class ServerTls:
    """The TLS of one https server: its certificate and its protocol versions.

    :param verify: False to skip verification, True to use default authorities, or a PEM file with authorities.
    :param for_nodes: True if nodes also contact this server, and verify it with their own authorities.
    """

    def __init__(self, address: str, verify: bool | str, *, for_nodes: bool) -> None:
        self.what = f"TLS of {address}"
        self.is_https = address.startswith("https:")
        self._place = host_and_port(address)
        self._verify = verify
        self._for_nodes = for_nodes

    def check(self) -> Iterator[Finding]:
        try:
            certificate, version = self._connect(_context(self._verify))
        except (OSError, ValueError):
            return  # the server's own check reports the error
        findings = [*self._ends(certificate), *self._old_versions(), *self._unknown_to_nodes()]
        until = certificate.not_valid_after_utc.date()
        yield from findings or [ok(self.what, f"{version}, with a certificate until {until}")]
        if self._verify is False:
            advice = "set `verify` to the PEM file of its authority"
            yield warning(self.what, "its certificate is not verified, so another server could impersonate it", advice)

    def _ends(self, certificate: x509.Certificate) -> Iterator[Finding]:
        left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        if left < _SOON:
            until = certificate.not_valid_after_utc
            when = f"ended on {until:%Y-%m-%d}" if left.days < 0 else f"ends on {until:%Y-%m-%d}, in {left.days} days"
            yield warning(self.what, f"its certificate {when}", "have its administrator renew it")

    def _old_versions(self) -> Iterator[Finding]:
        try:
            _, version = self._connect(_old_context())
        except (OSError, ValueError):
            return
        advice = "have its administrator allow TLS 1.2 and later only"
        yield warning(self.what, f"it still accepts {version}, which is insecure", advice)

    def _unknown_to_nodes(self) -> Iterator[Finding]:
        """Check the certificate with this host's authorities, because nodes usually have the same authorities."""
        if not self._for_nodes or self._verify is False:
            return
        try:
            self._connect(_context(True))
        except ssl.SSLCertVerificationError as error:
            yield warning(
                self.what,
                f"this host's default authorities do not trust its certificate ({error.verify_message}), and the "
                "nodes may have no other authorities",
                "copy its authority's PEM file to the nodes, and set `nodes_ca_file` in the connection to that path",
            )
        except OSError:
            return

    def _connect(self, context: ssl.SSLContext) -> tuple[x509.Certificate, str]:
        host, _ = self._place
        with (
            socket.create_connection(self._place, timeout=CONNECT_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host) as opened,
        ):
            return x509.load_der_x509_certificate(opened.getpeercert(True) or b""), opened.version() or "TLS"


def _context(verify: bool | str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    return context if verify else _unchecked(context)


def _old_context() -> ssl.SSLContext:
    context = _unchecked(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the check needs the deprecated versions
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def _unchecked(context: ssl.SSLContext) -> ssl.SSLContext:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


TICKET = "Kerberos ticket"
_SHORT = 600  # seconds: warn about a ticket that expires sooner


def check_ticket(login: str | None, seen: list[Ticket]) -> Iterator[Finding]:
    """Check the worker's Kerberos ticket.

    :param login: the connection's user; None if jobs may run as the ticket's owner.
    :param seen: a valid ticket is appended to this list.
    """
    try:
        found = ticket()
    except ClusterAuthError as error:
        yield problem(TICKET, str(error), "")
        return
    if found.seconds == 0:
        yield problem(
            TICKET, f"the ticket of {found.principal} has expired", "run kinit, or let `airflow kerberos` run"
        )
        return
    seen.append(found)
    left = "" if found.seconds is None else f", valid for another {found.seconds // 60} min"
    detail = f"{found.principal}{left}"
    if login and login != found.user:
        advice = f"jobs run as {found.user}: leave the connection's user empty, or set it to this name"
        yield warning(TICKET, f"{detail}, while the connection's user is {login}", advice)
    elif found.seconds is not None and found.seconds < _SHORT:
        yield warning(TICKET, detail, "renew it: run kinit, or let `airflow kerberos` run")
    else:
        yield ok(TICKET, detail)


def refused(what: str, said: str, *, has_ticket: bool) -> Finding:
    """Return the finding for a server that rejected a request for lack of a usable Kerberos authentication."""
    if not has_ticket:
        return problem(
            what, "it requires Kerberos, but the connection does not", "set `kerberos` to true in the connection"
        )
    if found := reason(said):
        return problem(what, f"it does not accept the Kerberos ticket: {found.meaning} ({said})", found.remedy)
    advice = "see the finding on the ticket; the host name must match the server's principal, HTTP/<host>"
    return problem(what, "it does not accept the Kerberos ticket", advice)


_CLOCKS = "Clocks"
_MOST_SKEW = 300.0  # seconds: the largest difference that Kerberos accepts by default
_SKEW = 30.0


@attrs.define
class DaemonChecks(ABC):
    """Checks the daemons of one kind, and records which are active or standby."""

    kind: ClassVar[str]
    address_advice: ClassVar[str]
    failover_advice: ClassVar[str]

    way: RequestOptions
    active: list[str] = attrs.field(factory=list)
    standby: list[str] = attrs.field(factory=list)

    def checks(self, addresses: Sequence[str]) -> list[Check]:
        """Return a check of each daemon, and one check that needs the results of all daemons."""
        of_each = [Check(f"{self.kind} {address}", partial(self._check, address)) for address in addresses]
        return [*of_each, Check(f"{self.kind}s", self.together, [LATER])]

    def together(self) -> Iterator[Finding]:
        """Yield the findings that need the results of all daemons."""
        if self.standby and not self.active:
            advice = f"wait for a failover, or check the states: {self.failover_advice}"
            yield problem(f"{self.kind}s", f"no {self.kind} that answers is active", advice)

    def softened(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Reduce the problems of single daemons to warnings if another daemon is active.

        A missing standby matters only after the active daemon fails.
        """
        for each in findings:
            yield softened(each) if self.active and each.what.startswith(f"{self.kind} ") else each

    def _check(self, address: str) -> Iterator[Finding]:
        what = f"{self.kind} {address}"
        try:
            response = self._ask(address)
        except Unanswered as error:
            yield problem(what, error.detail, error.advice)
            return
        state, (exception, message) = self._state(response), said_exception(response)
        if self.way.gateway and is_refused_by_gateway(response):
            yield problem(what, refused_by_gateway(response), GATEWAY_REMEDY)
        elif state:
            (self.active if state.startswith("active") else self.standby).append(address)
            yield ok(what, state)
        elif asks_for_kerberos(response):
            yield refused(what, message, has_ticket=self.way.auth is not None)
        elif exception:
            said = f"{exception}: {message.strip().partition(chr(10))[0]}"
            yield problem(what, f"it answered {response.status_code} ({said})", self.address_advice)
        else:
            yield problem(what, f"this is {describe_server(address, self.way, response)}", self.address_advice)

    @abstractmethod
    def _ask(self, address: str) -> requests.Response:
        """Send the request that shows the daemon's state. Raises Unanswered."""

    @abstractmethod
    def _state(self, response: requests.Response) -> str:
        """Return a description that begins with ``active`` or ``standby``, or an empty string for other answers."""


@attrs.define
class ResourceManagerChecks(DaemonChecks):
    """Checks the ResourceManagers, and records how far their clocks are ahead."""

    kind = "ResourceManager"
    address_advice = "set the connection's host to the ResourceManager's web address, by default http://<host>:8088"
    failover_advice = "yarn rmadmin -getAllServiceState"

    skews: list[float] = attrs.field(factory=list)  # seconds by which their clocks are ahead of this host's

    def together(self) -> Iterator[Finding]:
        yield from super().together()
        if self.skews:
            yield _clocks(max(self.skews, key=abs))

    def _ask(self, address: str) -> requests.Response:
        before = time.time()
        response = self.way.send("GET", rest_url(address, "/ws/v1/cluster/info", self.way.gateway))
        skew = server_clock_ahead(response.headers.get("Date"), before, time.time())
        if skew is not None:
            self.skews.append(skew)
        return response

    def _state(self, response: requests.Response) -> str:
        info = json_of(response).get("clusterInfo")
        if response.ok and isinstance(info, dict):
            state = "active" if str(info.get("haState", "ACTIVE")) == "ACTIVE" else "standby"
            return f"{state}, Hadoop {info.get('resourceManagerVersion', 'of unknown version')}"
        return "standby" if response.is_redirect or "standby RM" in response.text else ""


def _clocks(skew: float) -> Finding:
    which = "ahead of" if skew > 0 else "behind"
    detail = f"the ResourceManager's clock is {abs(skew):.0f} s {which} this host's"
    if abs(skew) < _SKEW:
        return ok(_CLOCKS, "the clocks of this host and the ResourceManager agree")
    if abs(skew) < _MOST_SKEW:
        return warning(_CLOCKS, detail, "synchronize both clocks by NTP")
    return problem(_CLOCKS, detail, "synchronize both clocks by NTP: Kerberos accepts at most 5 minutes")


@attrs.define
class NameNodeChecks(DaemonChecks):
    """Checks of the NameNodes."""

    kind = "NameNode"
    address_advice = "set `webhdfs` to the NameNode's web address, by default http://<host>:9870 (50070 in Hadoop 2)"
    failover_advice = "hdfs haadmin -getAllServiceState"

    def _ask(self, address: str) -> requests.Response:
        url = f"{address}/webhdfs/v1/?op=GETFILESTATUS"
        way = self.way
        if way.auth and not way.gateway and not asks_for_kerberos(way.send("GET", url, authenticated=False)):
            raise Unanswered(
                "it does not use Kerberos, but the connection does", "set `kerberos` to false in the connection"
            )
        return way.send("GET", url)

    def _state(self, response: requests.Response) -> str:
        if response.ok and "FileStatus" in json_of(response):
            return "active"
        return "standby" if "StandbyException" in said_exception(response)[0] else ""


QUEUE = "Queue"


def may_submit(cluster: YarnCluster, queue: str) -> Finding:
    """Return a finding on whether the cluster's user may submit to a queue. Raises ClusterError."""
    every = cluster.queues()
    if every is None or find_queue(queue, every) is None:
        return _unknown_access(queue, "the scheduler creates queues on demand, and does not report who may submit")
    try:
        if (cluster.rest.setting("yarn.acl.enable") or "").lower() != "true":
            return ok(f"{QUEUE} {queue}", "accepts applications of all users")
    except ConfigurationHidden:
        return _unknown_access(queue, "accepts applications; the cluster hides whether it enforces access lists")
    return queue_access(cluster.user, queue, every)


def queue_access(user: str, queue: str, every: Sequence[Queue]) -> Finding:
    """Return a finding on whether the queue's access lists allow the user. The cluster must enforce access lists."""
    found = find_queue(queue, every)
    shown = found.submitters if found is not None else None
    if found is None or shown is None:
        return _unknown_access(queue, "accepts applications; its access lists are not shown")
    lists = [AccessList.parse(text) for each in upwards(found, every) for text in each.submitters or []]
    if any(each.everybody or user in each.users for each in lists):
        return ok(f"{QUEUE} {queue}", f"accepts applications of {user}")
    if groups := sorted({group for each in lists for group in each.groups}):
        return _unknown_access(queue, f"accepts the groups {', '.join(groups)}; only the cluster knows {user}'s groups")
    allowed = ", ".join(sorted({name for each in lists for name in each.users})) or "administrators"
    detail = f"its access list does not allow {user} to submit, only {allowed}"
    return problem(f"{QUEUE} {queue}", detail, "request access (acl_submit_applications), or use another queue")


def _unknown_access(queue: str, detail: str) -> Finding:
    return warning(f"{QUEUE} {queue}", detail, "if the queue rejects jobs, contact its administrator")


SUBMISSION = "Applications over REST"
SCHEDULER = "Scheduler address"
PAGES = "Masters' pages"
_POLICY = "yarn.resourcemanager.application-https.policy"


@attrs.frozen
class SchedulerChecks:
    """Checks that query the active ResourceManager. All raise ClusterError."""

    cluster: YarnCluster
    queue: str | None  # the connection's queue; None if it names none

    def submission(self) -> Iterator[Finding]:
        self.cluster.new_application()  # an id that is never used costs nothing
        yield ok(SUBMISSION, f"{self.cluster.user} receives application ids")

    def its_queue(self) -> Iterator[Finding]:
        if self.queue is None:
            yield ok(QUEUE, "the connection names no queue: YARN chooses one for each job that names none")
        elif found := self.cluster.queue_problem(self.queue):
            yield problem(f"{QUEUE} {self.queue}", found, "set the connection's `queue` to another queue")
        else:
            yield may_submit(self.cluster, self.queue)

    def pages(self) -> Iterator[Finding]:
        """Check that YARN's proxy can reach application masters. Job pages and stop requests need this."""
        try:
            policy = (self.cluster.rest.setting(_POLICY) or "NONE").upper()
            proxy = self.cluster.rest.setting("yarn.web-proxy.address")
        except ConfigurationHidden:
            return  # the check of the scheduler's address reports it
        if policy == "NONE":
            yield ok(PAGES, f"YARN's proxy contacts application masters over http ({_POLICY} is NONE)")
        elif proxy:
            detail = f"{_POLICY} is {policy}, but the stand-alone proxy {proxy} lacks the required keys"
            yield warning(
                PAGES, detail, "it cannot reach application masters; use the ResourceManager's own proxy, or NONE"
            )
        else:
            yield ok(PAGES, f"YARN's proxy contacts application masters over https ({_POLICY} is {policy})")

    def addresses(self) -> Iterator[Finding]:
        try:
            schedulers = self.cluster.schedulers()
        except ConnectionProblem as error:
            yield problem(SCHEDULER, str(error), "")
            return
        yield ok(SCHEDULER, f"application masters use {', '.join(schedulers)}")
        try:
            federated = self.cluster.rest.setting("yarn.federation.enabled")
            if (federated or "").lower() == "true":
                name = self.cluster.rest.setting("yarn.resourcemanager.cluster-id")
                yield ok("Federation", f"jobs use only the sub-cluster {name or 'of the ResourceManager'}")
        except ConfigurationHidden:
            yield warning(
                "ResourceManager's configuration",
                "it is shown to administrators only",
                "set `scheduler_address`, a full `staging_dir` and, with Kerberos, `rm_principal` in the connection",
            )
