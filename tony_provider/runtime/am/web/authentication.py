"""Authentication and authorization of HTTP requests to the application master.

``YarnAuthenticator`` trusts YARN's web proxy (``Proxies``, ``proxy_tls``) and the application's access lists.
``LocalAuthenticator`` checks the secret in the application's folder.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Optional
from urllib.parse import unquote_plus

from tony_provider.runtime.am.web.server import JSON, AccessType, Head, HttpError
from tony_provider.runtime.application import YarnAccess
from tony_provider.runtime.common.concurrency import loop_time, wait_with_timeout
from tony_provider.runtime.common.network import canonical_host, load_key
from tony_provider.runtime.hadoop.java_keystore import JavaKeystore, KeystoreError, certificate_pem
from tony_provider.runtime.hadoop.yarn_records import AccessList
from tony_provider.runtime.protocol.master_files import SECRET_FILE

log = logging.getLogger(__name__)


class Authenticator(ABC):
    """Authenticates users and checks what they may do."""

    @abstractmethod
    def expects(self, source: str) -> bool:
        """Return whether requests from this address may be answered, as far as is known without a look-up."""

    @abstractmethod
    async def look_up(self) -> None:
        """Refresh the list of expected addresses. The caller repeats this periodically."""

    @abstractmethod
    async def visitor(self, source: str, head: Head) -> str:
        """Return the user of a request from the address ``source``, or "" if the proxy names no user.

        Raises HttpError if the client must not be answered.
        """

    @abstractmethod
    async def check(self, user: str, access: AccessType) -> None:
        """Check that the user has this access. Raises HttpError if not."""

    @abstractmethod
    def learn(self, access_lists: Mapping[str, str]) -> None:
        """Apply the access lists that the cluster keeps for the application (VIEW_APP, MODIFY_APP) from now on."""


# Every browser sends Origin or Accept-Language with each PUT. Scripts cannot prevent that, and YARN's proxy forwards
# these headers. Programs send neither. The other headers arrive only from browsers that bypass the proxy.
_OF_BROWSERS = ("origin", "accept-language", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "referer")
_NAME_OF_BROWSERS = "Mozilla/"  # prefix of the User-Agent of all browsers


def check_json(head: Head) -> None:
    """Check that the body is declared as JSON, which no HTML form can do. Raises HttpError if not."""
    kinds = [value.partition(";")[0].strip().lower() for value in head.values("content-type")]
    if kinds != [JSON]:
        message = f"send JSON, with the header Content-Type: {JSON}"
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)


def check_no_browser(head: Head) -> None:
    """Check that the order does not come from a browser. Raises HttpError if it does."""
    if (sign := _sign_of_browser(head)) is not None:
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            f"orders from a browser are rejected ({sign}), because any page of this ResourceManager could send them "
            "in your name: use airflow tony, Airflow's pages, or a program such as curl",
        )


def _sign_of_browser(head: Head) -> Optional[str]:
    for name in _OF_BROWSERS:
        if head.values(name):
            return f"the header {name.title()}"
    if any(value.startswith(_NAME_OF_BROWSERS) for value in head.values("user-agent")):
        return "its User-Agent"
    return None


_USER_COOKIE = "proxy-user"  # unsigned, so it counts only if the proxy sends it


class YarnAuthenticator(Authenticator):
    """Admits users that YARN's web proxy names, as far as the application's access lists allow."""

    def __init__(self, access: YarnAccess, owners: Collection[str]) -> None:
        """``owners`` are all names of the user who runs the application."""
        self._proxies = Proxies(access.proxies)
        self._owners = frozenset(owners)
        heeded = access.administrators is not None
        self._administrators = [
            AccessList.parse(text) for text in (access.administrators, *access.queue_administrators) if heeded and text
        ]
        # If YARN does not apply access lists, every user may view everything, but only the owner may change it.
        self._lists = {AccessType.VIEW: AccessList(everybody=not heeded), AccessType.MODIFY: AccessList()}

    def learn(self, access_lists: Mapping[str, str]) -> None:
        for access in AccessType:
            if access.value in access_lists and not self._lists[access].everybody:
                self._lists[access] = AccessList.parse(access_lists[access.value])

    def expects(self, source: str) -> bool:
        return self._proxies.know(source)

    async def look_up(self) -> None:
        await self._proxies.look_up()

    async def visitor(self, source: str, head: Head) -> str:
        if not await self._proxies.include(source):
            message = "this application master answers YARN's web proxy only; use the application's tracking URL"
            raise HttpError(HTTPStatus.FORBIDDEN, message)
        return _proxy_user(head) or ""

    async def check(self, user: str, access: AccessType) -> None:
        if user in self._owners:
            return
        for each in (self._lists[access], *self._administrators):
            if await each.allows(user):
                return
        wanted = "view" if access is AccessType.VIEW else "modify"
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            f"{user or 'an unnamed user'} may not {wanted} this application of {', '.join(sorted(self._owners))}: "
            f"the user is not in its access list {access.value}, and not an administrator of YARN or of the queue",
        )


def _proxy_user(head: Head) -> Optional[str]:
    """Return the user in the proxy's cookie, or None if there is no cookie or more than one."""
    cookies = [part.strip().partition("=") for value in head.values("cookie") for part in value.split(";")]
    users = [unquote_plus(value.strip('"')) for name, _, value in cookies if name == _USER_COOKIE]
    return users[0] if len(users) == 1 else None


_RESOLVE_SECONDS = 5.0  # limit for the resolution of one name
_SOONEST = 5.0  # seconds between two look-ups, even with many requests from strangers
_LATEST = 300.0  # seconds for which a look-up is valid
# A ResourceManager with one of these names runs on this machine, and connects from the address of its host name.
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class Proxies:
    """The addresses of the web proxies' hosts, resolved on demand."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._addresses: dict[str, frozenset[str]] = {host: frozenset() for host in hosts}
        if not self._addresses.keys().isdisjoint(_THIS_MACHINE):
            self._addresses[socket.gethostname()] = frozenset()
        self._resolved_at: Optional[float] = None
        self._resolving = asyncio.Lock()

    async def include(self, source: str) -> bool:
        """Return whether this address belongs to a proxy.

        Names are resolved again if necessary, because a proxy may get another address while the job runs.
        """
        address = canonical_host(source)
        async with self._resolving:
            now = loop_time()
            age = _LATEST if self._resolved_at is None else now - self._resolved_at
            if age >= _LATEST or (age >= _SOONEST and not self._knows(address)):
                await self._resolve_all()
        return self._knows(address)

    def know(self, source: str) -> bool:
        """Return whether this address belongs to a proxy, according to the last look-up."""
        return self._knows(canonical_host(source))

    async def look_up(self) -> None:
        """Resolve the names again, unless the last look-up is recent."""
        async with self._resolving:
            now = loop_time()
            if self._resolved_at is None or now - self._resolved_at >= _SOONEST:
                await self._resolve_all()

    async def _resolve_all(self) -> None:
        self._resolved_at = loop_time()
        await asyncio.gather(*(self._resolve(host) for host in self._addresses))

    def _knows(self, address: str) -> bool:
        return any(address in addresses for addresses in self._addresses.values())

    async def _resolve(self, host: str) -> None:
        """Resolve a name. If that fails, the last known addresses stay valid."""
        loop = asyncio.get_running_loop()
        try:
            found = await wait_with_timeout(loop.getaddrinfo(host, None, type=socket.SOCK_STREAM), _RESOLVE_SECONDS)
        except (OSError, UnicodeError, asyncio.TimeoutError) as error:
            log.warning("the web proxy's host %s cannot be resolved: %s", host, error)
            return
        self._addresses[host] = frozenset(canonical_host(str(address[0])) for _, _, _, _, address in found)


# The names of org.apache.hadoop.yarn.server.security.AMSecretKeys.
_KEYSTORE, _KEYSTORE_PASSWORD = "yarn.application.am.keystore", "yarn.application.am.keystore.password"
_TRUSTSTORE, _TRUSTSTORE_PASSWORD = "yarn.application.am.truststore", "yarn.application.am.truststore.password"
# Variables of org.apache.hadoop.yarn.api.ApplicationConstants with the paths of two files. YARN writes the
# keystore and the truststore to these files as well, for masters that read no token file.
_FILES = ("KEYSTORE_FILE_LOCATION", "TRUSTSTORE_FILE_LOCATION")


def proxy_tls(secrets: Mapping[str, bytes]) -> Optional[ssl.SSLContext]:
    """Return TLS settings for the web server that admit only YARN's proxy, or None if YARN requires http.

    If the keystore is unreadable, the server also uses http, because training does not depend on the page. YARN's
    https policy LENIENT allows that. Blocks.
    """
    if _KEYSTORE not in secrets:
        return None
    try:
        key = _read(secrets, _KEYSTORE, _KEYSTORE_PASSWORD).only_key
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_key(context, key.pem)
        _require_proxy(context, secrets)
    except (KeystoreError, OSError) as error:
        log.error("the page is served over http: the keystore that YARN has made cannot be used: %s", error)  # noqa: TRY400
        return None
    return context


def remove_files(environ: Mapping[str, str]) -> None:
    """Delete YARN's keystore files, because the user's other programs on this node could read them. Blocks."""
    for name in _FILES:
        if path := environ.get(name):
            with contextlib.suppress(OSError):
                Path(path).unlink()


def _require_proxy(context: ssl.SSLContext, secrets: Mapping[str, bytes]) -> None:
    """Require a client certificate of YARN's certificate authority, because only the proxy has the authority's key."""
    if _TRUSTSTORE not in secrets:
        return
    trusted = _read(secrets, _TRUSTSTORE, _TRUSTSTORE_PASSWORD).trusted
    if not trusted:
        raise KeystoreError("its truststore is empty")
    context.load_verify_locations(cadata=b"".join(map(certificate_pem, trusted)).decode())
    context.verify_mode = ssl.CERT_REQUIRED


def _read(secrets: Mapping[str, bytes], store: str, password: str) -> JavaKeystore:
    return JavaKeystore.read(secrets[store], secrets.get(password, b"").decode("utf-8", "replace"))


_HOW = f"the password of this page is in the application's folder, in the file {SECRET_FILE}; any user name is accepted"


class LocalAuthenticator(Authenticator):
    """Admits every client that knows the secret of the application's folder.

    The secret arrives as a bearer token from programs, or as a password from browsers.
    """

    def __init__(self, secret: str, owner: str) -> None:
        self._expected = secret.encode()
        self._owner = owner

    def learn(self, access_lists: Mapping[str, str]) -> None:
        """Do nothing, because there are no access lists."""

    def expects(self, source: str) -> bool:
        """Return True: the secret counts, not the address."""
        return True

    async def look_up(self) -> None:
        """Do nothing: addresses are irrelevant."""

    async def visitor(self, source: str, head: Head) -> str:
        given = head.values("authorization")
        if len(given) != 1 or not hmac.compare_digest(_secret(given[0]), self._expected):
            raise HttpError(HTTPStatus.UNAUTHORIZED, _HOW, {"WWW-Authenticate": 'Basic realm="tony", charset="UTF-8"'})
        return self._owner

    async def check(self, user: str, access: AccessType) -> None:
        """Allow everything, because ``visitor`` only admits the owner."""


def _secret(authorization: str) -> bytes:
    """Return the secret in an Authorization header, or an empty value."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
