"""Kerberos tickets of the Airflow side, SPNEGO for its requests, and delegation tokens for HDFS and its key server.

The ticket is the worker's own (``airflow kerberos`` or kinit). The module reads the ticket's owner and lifetime from
the credential cache, which requires the library of MIT Kerberos. With delegation tokens, applications on a Kerberos
cluster can access HDFS without a ticket.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs
from requests import PreparedRequest, Response
from requests.auth import AuthBase

from tony_provider.cluster.errors import ClusterAuthError, ConfigurationHidden, ConnectionProblem, StagingFailed
from tony_provider.cluster.settings import NO_KEY_SERVER, GatewayLogin, MasterKeytab, YarnSettings
from tony_provider.cluster.tables import HiveMetastore
from tony_provider.cluster.yarn.configuration import setting
from tony_provider.cluster.yarn.rest import YarnRest
from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.gss import GssError, TicketExchange, Tickets
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, KEY_SERVER_TOKEN, Credentials, Token
from tony_provider.runtime.protocol.store_tokens import (
    KEY_SERVER_PREFIX,
    NewerTokens,
    StoreToken,
    TokenServer,
    fetch_newer_tokens,
    put_key_server_token,
    put_metastore_token,
    put_other_hdfs_token,
    put_store_token,
    store_token,
)
from tony_provider.runtime.storage.errors import StorageAuthError, StorageError
from tony_provider.runtime.storage.webhdfs.key_server import KeyServer
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import Negotiate, server_of, spnego_error

log = logging.getLogger(__name__)


_REDIRECTIONS, _ERRORS, _SERVER_ERRORS = 300, 400, 500  # first code of each class of HTTP status codes
_REFUSALS = (401, 403)


def http_auth(yarn: YarnSettings) -> AuthBase | None:
    """Return thread-safe authentication for the library ``requests``: at the gateway, by SPNEGO, or none.

    Raises ConnectionProblem if the library for SPNEGO is not installed.
    """
    if yarn.gateway:
        return _AtGateway(yarn.gateway, yarn.resource_managers + yarn.webhdfs.addresses)
    return _Spnego(own_tickets()) if yarn.kerberos else None


def http_logins(yarn: YarnSettings) -> tuple[Negotiate | None, Negotiate | None]:
    """Return the logins for the store, and for other servers, whose failures are StorageErrors.

    Behind a gateway, no other servers are contacted.
    """
    if login := yarn.gateway:
        return (lambda _: login), (lambda _: login)
    return (own_tickets().negotiate, own_tickets(spnego_error).negotiate) if yarn.kerberos else (None, None)


class _AtGateway(AuthBase):
    """Sends the login to the gateway, and to no other server."""

    def __init__(self, login: GatewayLogin, addresses: Iterable[str]) -> None:
        self._login = login
        self._servers = set(map(server_of, addresses))

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers.pop("Cookie", None)  # a session of another login
        if server_of(request.url or "") in self._servers:
            request.headers.update(self._login.headers)
        return request


class _Spnego(AuthBase):
    """Authenticates every request with a new SPNEGO exchange, so that the server proves its identity in each answer.

    With a session cookie Hadoop would omit this proof, so cookies are not sent.
    """

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        exchange = self._tickets.negotiate(urlsplit(request.url or "").hostname or "")
        request.headers.pop("Cookie", None)
        request.headers.update(exchange.headers)
        request.hooks.setdefault("response", []).append(lambda response, **_: _check_server(exchange, response))
        return request


def _check_server(exchange: TicketExchange, response: Response) -> None:
    """Check the server's proof of its identity, which Hadoop sends with successes and with client errors.

    Redirections and server errors may lack the proof, because this client does not use their content. Refusals by
    Kerberos never have a proof.
    """
    answer = response.headers.get("WWW-Authenticate")
    status = response.status_code
    believed = status < _REDIRECTIONS or (_ERRORS <= status < _SERVER_ERRORS and status not in _REFUSALS)
    if believed or (answer and status not in _REFUSALS):
        exchange.check(answer)


def _auth_error(_host: str, problem: str) -> Exception:
    return ClusterAuthError(problem)


def own_tickets(error: Callable[[str, str], Exception] = _auth_error) -> Tickets:
    """Return the worker's own tickets. ``error`` creates an error, see ``Tickets``; by default a ClusterAuthError.

    Raises ConnectionProblem if the library is not installed.
    """
    try:
        return Tickets(error)
    except GssError as problem:
        raise ConnectionProblem(f"{problem} (Debian: libgssapi-krb5-2, Red Hat: krb5-libs)") from problem


@attrs.frozen
class Ticket:
    """A Kerberos ticket of the worker."""

    principal: str
    seconds: int | None  # remaining validity; None if it is unlimited, or a keytab replaces the ticket

    @property
    def user(self) -> str:
        """Return the owner's short name by Hadoop's default rule: the part before ``/`` or ``@``."""
        return self.principal.split("@")[0].split("/")[0]


def ticket() -> Ticket:
    """Return the worker's own ticket. Raises ClusterAuthError if there is none."""
    try:
        return Ticket(*own_tickets().owner())
    except GssError as error:
        raise ClusterAuthError(str(error)) from error


_VERSION = 0x0504
_RENEWABLE = 0x00800000
_GRANTING = b"krbtgt"
_MOST_BYTES = 1 << 20


@attrs.frozen
class GrantingTicket:
    """The times when a ticket-granting ticket ends, in epoch seconds."""

    until: int
    renewable_until: int  # equal to ``until`` if the ticket is not renewable

    @classmethod
    def read(cls, cache: str) -> GrantingTicket | None:
        """Read the ticket from a cache such as ``FILE:/tmp/krb5cc_1000``.

        Return None if the cache is not a file or has no ticket.
        """
        kind, _, path = cache.rpartition(":")
        if kind not in ("", "FILE"):
            return None
        try:
            with Path(path).open("rb") as file:
                return next(_granting(_Reader(file.read(_MOST_BYTES))), None)
        except (OSError, struct.error):
            return None


def _granting(reader: _Reader) -> Iterator[GrantingTicket]:
    if reader.number("H") != _VERSION:
        return
    reader.take(reader.number("H"))
    reader.principal()
    while reader.left:
        reader.principal()  # the client
        service = reader.principal()
        reader.number("H")
        reader.data()  # the key
        _, _, end, renew_till = (reader.number("I") for _ in range(4))
        reader.take(1)
        flags = reader.number("I")
        for _ in range(2):  # addresses, authorisation data
            for _ in range(reader.number("I")):
                reader.number("H")
                reader.data()
        reader.data()
        reader.data()  # the ticket, and a second one
        if service[:1] == [_GRANTING]:
            yield GrantingTicket(end, max(end, renew_till) if flags & _RENEWABLE else end)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises struct.error if fewer bytes are left."""
        if size > self.left:
            raise struct.error("the file is cut off")
        self._at += size
        return self._content[self._at - size : self._at]

    def number(self, form: str) -> int:
        return int(struct.unpack(f">{form}", self.take(struct.calcsize(f">{form}")))[0])

    def data(self) -> bytes:
        return self.take(self.number("I"))

    def principal(self) -> list[bytes]:
        """Read a principal; return its components without the realm."""
        self.number("I")
        count = self.number("I")
        self.data()
        return [self.data() for _ in range(min(count, self.left))]


_DEFAULT_NAMENODE_PORT = 8020  # used if a URI names a NameNode without a port
_DEFAULT_RM_PRINCIPAL = "yarn"


@attrs.frozen
class KeyServerAccess:
    """Settings for the key server of HDFS encryption zones."""

    setting: str | None  # URI or NO_KEY_SERVER from the connection; None for the server that HDFS names
    open: Callable[[str], KeyServer]  # returns the client for a URI; raises ValueError
    insecure_http: bool = False  # allows tokens over plain http


@attrs.frozen
class HdfsClusters:
    """The HDFS clusters, the key server and the Hive metastore that issue tokens."""

    storage: WebHdfsStorage  # the HDFS with the staging directory
    authority: str  # authority of the staging directory's URI: a NameNode's host:port, or a nameservice
    others: Mapping[str, WebHdfsStorage]  # other HDFS clusters, by the authority in their URIs
    key_server: KeyServerAccess
    metastore: HiveMetastore | None = None  # of the tables in these clusters; None if the connection names none


class StoreTokens:
    """Fetches and cancels delegation tokens of HDFS, its key server and the Hive metastore for applications.

    :param user: user that applications run as.
    :param rm_principal: Kerberos principal of the ResourceManager, which renews the tokens. If None, the
        ResourceManager's configuration reports it.
    :param keytab: keytab with which application masters fetch new tokens. If None, the Airflow side sends new tokens.
    """

    def __init__(
        self,
        hdfs: HdfsClusters,
        rest: YarnRest,
        user: str,
        rm_principal: str | None,
        keytab: MasterKeytab | None = None,
    ) -> None:
        self._hdfs = hdfs
        self._rest = rest
        self._user = user
        self._rm_principal = rm_principal
        self._keytab = keytab

    def fetch(self, credentials: Credentials, *, hive: bool = False) -> StoreToken:
        """Fetch tokens for the current user and add them to ``credentials``. Return the tokens, for ``cancel``.

        ``hive``: also fetch a token of the Hive metastore, if the connection names one. Raises StorageError,
        StagingFailed if HDFS returns no token, and ConnectionProblem.
        """
        if self._keytab is not None:
            credentials.secrets.update(self._keytab_secrets(self._keytab))
        names = [self._hdfs.authority, *self._hdfs.others]
        services = {name: self._service(name) for name in names}  # before the first token, as this may fail
        renewer = self._renewer()
        put_store_token(credentials, self._token(self._hdfs.storage, renewer), [services[self._hdfs.authority]])
        try:
            for name, storage in self._hdfs.others.items():
                put_other_hdfs_token(credentials, name, self._token(storage, renewer), [services[name]])
            self._add_key_server_token(credentials, renewer)
            if hive and (metastore := self._hdfs.metastore) is not None:
                put_metastore_token(credentials, metastore.name, metastore.get_delegation_token())
        except BaseException:
            if (gotten := store_token(credentials)) is not None:
                self.cancel(gotten)
            raise
        found = store_token(credentials)
        assert found is not None  # noqa: S101 - added above
        return found

    def pretend(self, credentials: Credentials) -> None:
        """Add empty tokens instead of the tokens that ``fetch`` adds, for a preview. Fetches no token."""
        empty = Token(b"", b"", HDFS_TOKEN, "").to_url_string()
        put_store_token(credentials, empty, [self._service(self._hdfs.authority)])
        for name in self._hdfs.others:
            put_other_hdfs_token(credentials, name, empty, [self._service(name)])
        if uri := self._key_server_uri():
            of_server = Token(b"", b"", KEY_SERVER_TOKEN, "").to_url_string()
            put_key_server_token(credentials, uri, of_server, self._aliases(self._opened(uri)))

    def newer(self, names: Collection[str]) -> NewerTokens:
        """Fetch new tokens for a running application, with the Airflow side as their renewer.

        Servers report a token's expiry only to its renewer, so the expiry of these tokens is known. The tokens are
        valid until then without further renewals. ``names`` are the application's token servers in addition to the
        store. Raises StorageError for the store itself, and StagingFailed if HDFS returns no token.
        """
        others: dict[str, TokenServer] = {name: each for name, each in self._hdfs.others.items() if name in names}
        # The application's user could change ``names`` on the store, so contact only servers that the connection knows.
        if any(name.startswith(KEY_SERVER_PREFIX) for name in names) and (uri := self._key_server_uri()) in names:
            others[uri] = self._opened(uri)
        if (metastore := self._hdfs.metastore) is not None and metastore.name in names:
            others[metastore.name] = metastore
        return fetch_newer_tokens(self._hdfs.storage, others, self._user)

    def close(self) -> None:
        self._hdfs.storage.close()

    def ticket_until(self) -> float | None:
        """Return the epoch seconds until which this worker's own ticket can be renewed.

        Return None if the ticket comes from a keytab, if a gateway needs no ticket, or if the time is unknown.
        """
        if self._rest.config.gateway or os.environ.get("KRB5_CLIENT_KTNAME"):
            return None
        ticket = GrantingTicket.read(os.environ.get("KRB5CCNAME") or f"/tmp/krb5cc_{os.getuid()}")  # noqa: S108
        return ticket.renewable_until if ticket is not None else None

    def cancel(self, tokens: StoreToken) -> None:
        """Cancel tokens that no application will use. Errors are only logged because the tokens expire."""
        self._cancel(self._hdfs.storage, tokens.text)
        for other in tokens.others:
            if other.name in self._hdfs.others:
                self._cancel(self._hdfs.others[other.name], other.text)
            elif other.name.startswith(KEY_SERVER_PREFIX):
                self._cancel(self._opened(other.name), other.text)
            elif (metastore := self._hdfs.metastore) is not None and other.name == metastore.name:
                self._cancel(metastore, other.text)

    def _cancel(self, server: WebHdfsStorage | KeyServer | HiveMetastore, token: str) -> None:
        try:
            server.cancel_delegation_token(token)
        except StorageError as error:
            log.info("Cannot cancel a delegation token: %s", error)

    def _token(self, storage: WebHdfsStorage, renewer: str) -> str:
        token = storage.get_delegation_token(renewer)
        if token is None:
            raise StagingFailed(
                f"HDFS at {storage.config.addresses[0]} issues no delegation tokens, so it does not use Kerberos; set "
                "`kerberos` to false in the tony connection, or name a secure NameNode"
            )
        return token

    # ---- the key server --------------------------------------------------------------------------------------------

    def _add_key_server_token(self, credentials: Credentials, renewer: str) -> None:
        """Fetch a key server token if the cluster has a key server, as Hadoop's clients do for each application.

        If the connection does not name the server, only log a warning on errors: most applications need no such token.
        """
        if not (uri := self._key_server_uri()):
            return
        server = self._opened(uri)
        try:
            self._refuse_plain_http(uri, server)
            aliases = self._aliases(server)
            token = server.get_delegation_token(renewer)
        except (StorageError, StagingFailed) as error:
            if self._hdfs.key_server.setting is not None:
                raise
            log.warning(
                "The job gets no key server token, so programs and nodes cannot read encryption zones: %s. If no job "
                "needs encryption zones, set `key_server` to `%s` in the tony connection",
                error,
                NO_KEY_SERVER,
            )
            return
        put_key_server_token(credentials, uri, token, aliases)

    def _refuse_plain_http(self, uri: str, server: KeyServer) -> None:
        plain = [address for address in server.addresses if address.startswith("http://")]
        if plain and not self._hdfs.key_server.insecure_http:
            raise StorageAuthError(
                uri,
                "get a token of",
                f"{', '.join(plain)}: plain http, so an eavesdropper could use the token",
                "configure https for it, or set `insecure_http` to true in the tony connection",
            )

    def try_key_server(self) -> str:
        """Fetch and cancel a token of the key server, as a test. Return the server's URI, or "" if there is none.

        Raises StorageError, ClusterError.
        """
        if uri := self._key_server_uri():
            server = self._opened(uri)
            self._refuse_plain_http(uri, server)
            self._cancel(server, server.get_delegation_token(self._user))
        return uri

    def _key_server_uri(self) -> str:
        """Return the URI of the key server, or "" if there is none."""
        setting = self._hdfs.key_server.setting
        if setting is None:
            found = self._hdfs.storage.key_server()
            return found if found.startswith(KEY_SERVER_PREFIX) else ""
        return "" if setting == NO_KEY_SERVER else setting

    def _opened(self, uri: str) -> KeyServer:
        try:
            return self._hdfs.key_server.open(uri)
        except ValueError as error:
            raise ConnectionProblem(f"the key server cannot be used: {error}") from error

    def _aliases(self, server: KeyServer) -> list[str]:
        found = (urlsplit(address) for address in server.addresses)
        return [self._address(each.hostname or "", str(each.port)) for each in found]

    # ---- user, renewer and addresses -------------------------------------------------------------------------------

    def _keytab_secrets(self, keytab: MasterKeytab) -> dict[str, bytes]:
        if keytab.user != self._user:
            raise StagingFailed(
                f"the connection's master_principal {keytab.principal} is not the job's user {self._user}: its "
                "tokens would give access to another user's files"
            )
        try:
            content = keytab.path.read_bytes()
        except OSError as error:
            raise StagingFailed(f"the connection's master_keytab {keytab.path}: {error.strerror}") from error
        return {contract.SECRET_KEYTAB: content, contract.SECRET_PRINCIPAL: keytab.principal.encode()}

    def _renewer(self) -> str:
        principal = self._rm_principal
        if principal is None:
            try:
                principal = self._rest.setting("yarn.resourcemanager.principal")
            except ConfigurationHidden as error:
                log.info("Using `yarn` as the ResourceManager's principal: %s", error)
        # HDFS maps this principal to a short name by its auth_to_local rules. The short name must be the user of the
        # ResourceManager.
        return (principal or _DEFAULT_RM_PRINCIPAL).replace("_HOST", self._rest.active_host())

    def _service(self, authority: str) -> str:
        """Return the service of a token, by which HDFS clients find it.

        Source: org.apache.hadoop.security.SecurityUtil.buildTokenService.
        """
        host, _, port = authority.partition(":")
        if not port and self._is_nameservice(host):
            return f"ha-hdfs:{host}"
        return self._address(host, port or str(_DEFAULT_NAMENODE_PORT))

    def _address(self, host: str, port: str) -> str:
        """Return IP address and port, or host name and port if ``hadoop.security.token.service.use_ip`` is false."""
        try:
            found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
        except OSError as error:
            raise StagingFailed(f"cannot resolve the server's host {host!r}: {error}") from error
        _, _, _, canonical, (address, *_) = found[0]
        if self._by_ip():
            return f"{address}:{port}"
        # Like Hadoop, complete a short host name with the resolver's search list.
        name = canonical if "." not in host and canonical.startswith(f"{host}.") else host
        return f"{name.lower()}:{port}"

    def _by_ip(self) -> bool:
        return setting(self._rest, "hadoop.security.token.service.use_ip", "true").lower() != "false"

    def _is_nameservice(self, name: str) -> bool:
        # If the configuration is hidden, assume a nameservice: the host of a NameNode without a port is less common.
        known = setting(self._rest, "dfs.nameservices", hidden=name)
        return name in known.replace(",", " ").split()
