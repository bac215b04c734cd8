"""Checks of the servers that a connection names: they accept connections, and their TLS is secure.

Calls of a running job are patient, because the job must outlast failovers. Before a job exists, a refused connection is
seldom a failover and often a wrong address. So ``expect_servers`` reports it within seconds.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import attrs
from cryptography import x509
from requests.utils import get_environ_proxies

from tony_provider.cluster.checks.job_checks import HTTPS_REMEDY
from tony_provider.cluster.errors import ClusterError, ClusterUnreachable, StagingFailed
from tony_provider.cluster.findings import Finding, ok, problem, warning
from tony_provider.cluster.http import CONNECT_SECONDS
from tony_provider.cluster.settings import YarnSettings

TIMEOUT = 10.0  # seconds for which all servers of a kind may refuse, because one may be starting
_CONNECT_SECONDS = 2.0  # a slower server counts as silent, and the calls themselves wait for it
_PAUSE = 0.5  # seconds between two rounds
_PORTS = {"http": 80, "https": 443}


def expect_servers(yarn: YarnSettings, timeout: float = TIMEOUT) -> None:
    """Check that ResourceManagers and NameNodes accept connections. Blocks for little more than ``timeout`` seconds.

    Raises ClusterUnreachable if every ResourceManager refuses connections or has a name without an address. Raises
    StagingFailed if every NameNode does. One server of a kind that accepts connections, or is silent, is enough.
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
                f"no {kind} is there: {'; '.join(refusals)} (for {timeout:g} s); check the addresses in the tony "
                "connection, and that the server runs"
            )
        time.sleep(_PAUSE)


@attrs.define
class _Knock:
    """One connection attempt, in its own thread because name resolution has no deadline."""

    address: str
    refusal: str = ""  # why no server can listen there; empty if one may

    def run(self) -> None:
        parts = urlsplit(self.address)
        port = parts.port or _PORTS[parts.scheme]
        try:
            socket.create_connection((parts.hostname, port), _CONNECT_SECONDS).close()
        except socket.gaierror:
            self.refusal = f"the name {parts.hostname!r} has no address here"
        except ConnectionRefusedError:
            self.refusal = f"nothing listens on port {port} of {parts.hostname}"
        except OSError:
            return  # silent, or unreachable at present


def _refusals(addresses: Sequence[str]) -> list[str]:
    knocks = [_Knock(address) for address in addresses]
    threads = [threading.Thread(target=knock.run, name="tony-knock", daemon=True) for knock in knocks]
    until = time.monotonic() + _CONNECT_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [knock.refusal for knock in knocks]


ENCRYPTION = "Encryption"
_SOON = datetime.timedelta(days=30)
_HTTPS_PORT = 443


def check_encryption(yarn: YarnSettings) -> Iterator[Finding]:
    """Check that secrets are not sent over plain http. Contacts no server."""
    plain = yarn.plain_addresses
    if plain and yarn.insecure_http:
        detail = f"jobs' keys, secrets and HDFS tokens go to {', '.join(plain)} in clear"
        yield warning(ENCRYPTION, detail, "name their https addresses, and leave `insecure_http` out")
    elif plain:
        yield problem(
            ENCRYPTION, f"{', '.join(plain)}: plain http with Kerberos, which no job is sent over", HTTPS_REMEDY
        )


class ServerTls:
    """The TLS of one https server: its certificate and its protocol versions.

    :param verify: the connection's setting: whether to verify servers, or the PEM file.
    :param for_nodes: True if nodes also contact this server and have only their own authorities.
    """

    def __init__(self, address: str, verify: bool | str, *, for_nodes: bool) -> None:
        parts = urlsplit(address)
        self.what = f"TLS of {address}"
        self.is_https = parts.scheme == "https"
        self._place = (parts.hostname or "", parts.port or _HTTPS_PORT)
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
            yield warning(self.what, "its certificate is not checked, so it may be anybody's", advice)

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
        yield warning(self.what, f"it still takes {version}, which is broken", advice)

    def _unknown_to_nodes(self) -> Iterator[Finding]:
        """Check the certificate with this host's authorities, because nodes usually have the same ones."""
        if not self._for_nodes or self._verify is False:
            return
        try:
            self._connect(_context(True))
        except ssl.SSLCertVerificationError as error:
            yield warning(
                self.what,
                f"with this host's own authorities its certificate is not trusted ({error.verify_message}), and the "
                "nodes may have no others",
                "put its authority's PEM file on the nodes, and name it as `nodes_ca_file` in the connection",
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
