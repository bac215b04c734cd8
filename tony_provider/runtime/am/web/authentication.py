"""The Authenticator interface: whom the application master answers over HTTP.

``yarn_authenticator`` and ``local_authenticator`` stand behind it.
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
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.network import canonical_host, load_key
from tony_provider.runtime.hadoop.java_keystore import JavaKeystore, KeystoreError, certificate_pem
from tony_provider.runtime.hadoop.yarn_records import AccessList
from tony_provider.runtime.protocol.master_files import SECRET_FILE


class Authenticator(ABC):
    """Says who asks, and whether that user may do what is asked."""

    @abstractmethod
    def expects(self, source: str) -> bool:
        """Whether anybody may be answered at this address, as far as that is known now."""

    @abstractmethod
    async def look_up(self) -> None:
        """Look up again which addresses are expected. To be called now and then."""

    @abstractmethod
    async def visitor(self, source: str, head: Head) -> str:
        """The user who asks, from the address ``source``; empty where nobody says. Raises HttpError for strangers."""

    @abstractmethod
    async def check(self, user: str, access: AccessType) -> None:
        """Check that this user may do this. Raises HttpError when not."""

    @abstractmethod
    def learn(self, access_lists: Mapping[str, str]) -> None:
        """Heed these access lists of the application from now on (VIEW_APP, MODIFY_APP), as the cluster has them."""


# Browsers send each of the first ones with a PUT, whatever a script says, and YARN's proxy passes it on; programs send
# none. The rest only comes from browsers that are not behind the proxy.
_OF_BROWSERS = ("origin", "accept-language", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "referer")
_NAME_OF_BROWSERS = "Mozilla/"  # so all of them begin


def check_json(head: Head) -> None:
    """Raises HttpError for a body that is not said to be JSON, as no form of a page can send it."""
    kinds = [value.partition(";")[0].strip().lower() for value in head.values("content-type")]
    if kinds != [JSON]:
        message = f"send JSON, with the header Content-Type: {JSON}"
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)


def check_no_browser(head: Head) -> None:
    """Raises HttpError for an order that a browser sends."""
    if (sign := _sign_of_browser(head)) is not None:
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            f"orders are not taken from a browser ({sign}), since any page of this ResourceManager could send them "
            "with your name: use airflow tony, Airflow's pages, or a program such as curl",
        )


def _sign_of_browser(head: Head) -> Optional[str]:
    for name in _OF_BROWSERS:
        if head.values(name):
            return f"the header {name.title()}"
    if any(value.startswith(_NAME_OF_BROWSERS) for value in head.values("user-agent")):
        return "its User-Agent"
    return None


_USER_COOKIE = "proxy-user"  # nobody signs it: from anywhere but the proxy it is worth nothing


class YarnAuthenticator(Authenticator):
    """Lets in whom YARN's web proxy names, as far as the application's access lists allow."""

    def __init__(self, access: YarnAccess, owners: Collection[str]) -> None:
        """``owners``: the names of the user whom the application runs as."""
        self._proxies = Proxies(access.proxies)
        self._owners = frozenset(owners)
        heeded = access.administrators is not None
        self._administrators = [
            AccessList.parse(text) for text in (access.administrators, *access.queue_administrators) if heeded and text
        ]
        # Where YARN heeds no lists everybody may look at everything; to interfere one is still to be the owner.
        self._lists = {AccessType.VIEW: AccessList(everybody=not heeded), AccessType.MODIFY: AccessList()}
        self._heeded = heeded

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
        wanted = "look at" if access is AccessType.VIEW else "interfere with"
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            f"{user or 'an unnamed user'} may not {wanted} this application of {', '.join(sorted(self._owners))}: "
            f"neither its access list {access.value} nor YARN's administrators and the queue's have that user",
        )


def _proxy_user(head: Head) -> Optional[str]:
    """None when it is not said, or more than once."""
    cookies = [part.strip().partition("=") for value in head.values("cookie") for part in value.split(";")]
    users = [unquote_plus(value.strip('"')) for name, _, value in cookies if name == _USER_COOKIE]
    return users[0] if len(users) == 1 else None


log = logging.getLogger(__name__)

_RESOLVE_SECONDS = 5.0  # for one name
_SOONEST = 5.0  # seconds between two look-ups, however many strangers call
_LATEST = 300.0  # seconds that a look-up is believed
# A ResourceManager that calls itself so is on this machine, and sends from the address that the machine's name has.
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class Proxies:
    """The addresses of the web proxies' hosts, looked up when they are needed."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._addresses: dict[str, frozenset[str]] = {host: frozenset() for host in hosts}
        if not self._addresses.keys().isdisjoint(_THIS_MACHINE):
            self._addresses[socket.gethostname()] = frozenset()
        self._resolved_at: Optional[float] = None
        self._resolving = asyncio.Lock()

    async def include(self, source: str) -> bool:
        """Whether this address is one of the proxies'.

        Names are looked up when they are needed: a proxy may get another address while the job runs.
        """
        address = canonical_host(source)
        async with self._resolving:
            now = asyncio.get_running_loop().time()
            age = _LATEST if self._resolved_at is None else now - self._resolved_at
            if age >= _LATEST or (age >= _SOONEST and not self._knows(address)):
                await self._resolve_all()
        return self._knows(address)

    def know(self, source: str) -> bool:
        """Whether this address is one of the proxies' by what was looked up last."""
        return self._knows(canonical_host(source))

    async def look_up(self) -> None:
        """Look the names up again, unless that was done a moment ago."""
        async with self._resolving:
            now = asyncio.get_running_loop().time()
            if self._resolved_at is None or now - self._resolved_at >= _SOONEST:
                await self._resolve_all()

    async def _resolve_all(self) -> None:
        self._resolved_at = asyncio.get_running_loop().time()
        await asyncio.gather(*(self._resolve(host) for host in self._addresses))

    def _knows(self, address: str) -> bool:
        return any(address in addresses for addresses in self._addresses.values())

    async def _resolve(self, host: str) -> None:
        """What a name meant last is believed while nobody says what it means now."""
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
# Of org.apache.hadoop.yarn.api.ApplicationConstants: the same again, as files for masters that read no token file.
_FILES = ("KEYSTORE_FILE_LOCATION", "TRUSTSTORE_FILE_LOCATION")


def proxy_tls(secrets: Mapping[str, bytes]) -> Optional[ssl.SSLContext]:
    """The TLS settings of the master's web server, which lets in nobody but YARN's proxy; None: YARN asks for http.

    With a keystore that cannot be read it is http, too, which LENIENT allows: a page is no reason not to train. Blocks.
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
    """Remove the files that hold the same: whoever else runs as this user on the node could read them. Blocks."""
    for name in _FILES:
        if path := environ.get(name):
            with contextlib.suppress(OSError):
                Path(path).unlink()


def _require_proxy(context: ssl.SSLContext, secrets: Mapping[str, bytes]) -> None:
    """The proxy's certificate is that of the authority itself, whose key nobody else has."""
    if _TRUSTSTORE not in secrets:
        return
    trusted = _read(secrets, _TRUSTSTORE, _TRUSTSTORE_PASSWORD).trusted
    if not trusted:
        raise KeystoreError("its truststore is empty")
    context.load_verify_locations(cadata=b"".join(map(certificate_pem, trusted)).decode())
    context.verify_mode = ssl.CERT_REQUIRED


def _read(secrets: Mapping[str, bytes], store: str, password: str) -> JavaKeystore:
    return JavaKeystore.read(secrets[store], secrets.get(password, b"").decode("utf-8", "replace"))


_HOW = f"the password of this page is in the application's folder, in the file {SECRET_FILE}; any user name will do"


class LocalAuthenticator(Authenticator):
    """Lets in whoever knows the secret of the application's folder.

    The secret comes as programs say it, or as browsers do, which ask for a password.
    """

    def __init__(self, secret: str, owner: str) -> None:
        self._expected = secret.encode()
        self._owner = owner

    def learn(self, access_lists: Mapping[str, str]) -> None:
        """Do nothing: there are no access lists here."""

    def expects(self, source: str) -> bool:
        """Anybody: the secret tells, not the address."""
        return True

    async def look_up(self) -> None:
        """Do nothing: addresses do not matter."""

    async def visitor(self, source: str, head: Head) -> str:
        given = head.values("authorization")
        if len(given) != 1 or not hmac.compare_digest(_secret(given[0]), self._expected):
            raise HttpError(HTTPStatus.UNAUTHORIZED, _HOW, {"WWW-Authenticate": 'Basic realm="tony", charset="UTF-8"'})
        return self._owner

    async def check(self, user: str, access: AccessType) -> None:
        """Allow everything: whoever gets here is the owner."""


def _secret(authorization: str) -> bytes:
    """Empty when there is none in it."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
