"""Replacement of expiring tokens, for the application master's access to the store on clusters with Kerberos.

Newer tokens come from the Airflow side, or from the application master's own keytab.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Union

import attrs

from tony_provider.runtime.application import ApplicationDescription, open_application_store
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms, moment
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.common.files import write_private_file
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.gss import GssError, Tickets
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol.status import TokenLife
from tony_provider.runtime.protocol.store_tokens import (
    NewerTokens,
    OtherToken,
    StoreToken,
    TokenServer,
    fetch_newer_tokens,
    replace_store_token,
    store_token,
)
from tony_provider.runtime.storage import Storage, StorageAuthError, StorageError, WebHdfsConfig, WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.key_server import KeyServer
from tony_provider.runtime.storage.webhdfs.transport import spnego_error

log = logging.getLogger(__name__)

_LOOK_SECONDS = 20.0  # limit for the test of a token on the store
_OWN_SHARE = 0.4  # fraction of a token's life until the master fetches a new one by its keytab, before other sources
_PAUSE = 30.0  # seconds after a failed attempt
_WAIT_SECONDS = 900.0  # seconds that a master with an expired token waits for a newer one


_REMEDY = (
    "To send newer tokens in time, let the task wait for its job (wait_for_completion) with a Kerberos ticket that "
    "is renewed, run `airflow tony renew` regularly, or name a `master_keytab` in the connection"
)


class TokenRefusedError(Exception):
    """A newer token was rejected. The message contains the reason."""


class StoreAccess:
    """Holds the tokens for access to the store, and reports newer ones to its listeners.

    In addition to the store's token, the application may have tokens of other HDFS and of a key server. The master and
    all its containers use them. A newer token must have the same owner, and the server must accept it. Requires a
    running event loop.
    """

    def __init__(self, description: ApplicationDescription, credentials: Credentials, storage: Storage) -> None:
        """``credentials``: credentials of the master, which later containers also receive. Raises CredentialsError."""
        self._description = description
        self._credentials = credentials
        self._storage = storage
        self._keytab = KeytabTokens.of(description, credentials.secrets)
        self._newest = store_token(credentials)
        self._turn = asyncio.Lock()
        self._renewed = asyncio.Event()  # a newer token has arrived at least once
        self._brought = asyncio.Event()  # a newer token has arrived since the last check of ``mind``
        self.newer: Optional[StoreToken] = None  # None before the first replacement; containers may have older ones
        self.listeners: list[Callable[[StoreToken], None]] = []  # called with each newer token

    @property
    def life(self) -> Optional[TokenLife]:
        """The lifetime of the token that expires first, or None if the store requires no token."""
        return _life(self._newest) if self._newest else None

    def trouble(self, now_ms: int) -> Optional[str]:
        """Return a warning if a token expires soon or has expired, otherwise None."""
        life = self.life
        if life is None or now_ms < life.last_quarter_ms:
            return None
        name = self._first_to_end()
        which = self._which()
        if now_ms < life.until_ms:
            return (
                f"the application's {which} expires at {moment(life.until_ms)}, and no newer token has arrived; "
                "`airflow tony renew` sends one"
            )
        what = "this service is not accessible any more" if name else "the store is not accessible any more"
        return f"the application's {which} expired at {moment(life.until_ms)}: {what}"

    def explained(self, problem: str, now_ms: int) -> str:
        """Return the problem of a failed application. If a token had expired, add this fact and a remedy."""
        life = self.life
        if life is None or now_ms < life.until_ms:
            return problem
        return f"{problem}\n({self.trouble(now_ms)}. {_REMEDY})"

    def _which(self) -> str:
        """Describe the token that expires first."""
        name = self._first_to_end()
        return f"token of {name}" if name else "HDFS token"

    def _first_to_end(self) -> str:
        """Return the service of the token that expires first, or an empty string for the store's own token."""
        if self._newest is None:
            return ""
        untils = {"": self._newest.until_ms, **{each.name: each.until_ms for each in self._newest.others}}
        return min(untils, key=lambda name: untils[name])

    async def until_it_holds(self) -> None:
        """Wait until the store accepts the token. Raise StorageError if no newer token arrives in time.

        Each master starts with the token of the submission, which may have expired when a later master starts.
        """
        if self._newest is None:
            return
        try:
            await asyncio.to_thread(self._look_at_all)
        except StorageAuthError as error:
            if await self._fetch():
                return
            log.warning("waiting %g s for a newer token of the store: %s", _WAIT_SECONDS, error)
            try:
                await wait_with_timeout(self._renewed.wait(), _WAIT_SECONDS)
            except asyncio.TimeoutError:
                raise error from None
        except StorageError as error:
            log.warning("cannot check the store's token: %s", error)

    async def mind(self, seconds: float, last_call: Callable[[str], None]) -> None:
        """Call ``last_call`` with a reason when a token is about to expire without a replacement.

        The call comes ``seconds`` before the expiry, so that a checkpoint can still be copied. It comes no earlier than
        the last quarter of the token's life. Returns if the store requires no token.
        """
        called = -1  # expiry of the token for which ``last_call`` was called
        while (life := self.life) is not None:
            self._brought.clear()
            left: Optional[float] = None
            if called != life.until_ms:
                at_ms = max(life.last_quarter_ms, life.until_ms - int(seconds * 1000))
                left = (at_ms - epoch_ms()) / 1000
                if left <= 0:
                    called, left = life.until_ms, None
                    last_call(f"the {self._which()} expires at {moment(life.until_ms)}")
            with suppress(asyncio.TimeoutError):
                await wait_with_timeout(self._brought.wait(), left)

    async def take(self, token: StoreToken) -> TokenLife:
        """Use newer tokens from now on. Idempotent. Raises TokenRefusedError.

        If a token of another service is rejected, log this and keep the present token of that service.
        """
        async with self._turn:
            newest = self._newest
            if newest is None:
                raise TokenRefusedError("the application was submitted without a token: its store requires none")
            if _is_newer(token, newest):
                await self._try(token)
                newest = attrs.evolve(newest, text=token.text, until_ms=token.until_ms)
            newest = attrs.evolve(newest, others=[await self._newer_of(each, token.others) for each in newest.others])
            if newest != self._newest:
                self._use(newest)
            return _life(newest)

    async def _newer_of(self, present: OtherToken, brought: Iterable[OtherToken]) -> OtherToken:
        """Return the token that replaces ``present``, or ``present`` itself if no newer one is accepted."""
        newer = next((each for each in brought if each.name == present.name), None)
        try:
            if newer is not None and _is_newer(newer, present):
                await self._try_other(newer)
                return newer
        except TokenRefusedError as error:
            log.warning("rejected the newer token of %s: %s", present.name, error)
        return present

    async def fetch(self) -> None:
        """Fetch newer tokens well before the expiry, until cancelled. Returns if the master has no keytab."""
        while self._keytab is not None and (life := self.life) is not None:
            wait_ms = life.issued_ms + (life.until_ms - life.issued_ms) * _OWN_SHARE - epoch_ms()
            await asyncio.sleep(max(0.0, wait_ms / 1000))
            if self.life == life and not await self._fetch():
                await asyncio.sleep(_PAUSE)

    async def _fetch(self) -> bool:
        """Fetch newer tokens. Return whether all of them were fetched."""
        if self._keytab is None:
            return False
        try:
            fetched = await asyncio.to_thread(self._keytab.newer)
            await self.take(fetched.token)
            for problem in fetched.problems:
                log.warning("cannot fetch a newer token with the keytab: %s", problem)
        except (StorageError, TokenRefusedError) as error:
            log.warning("cannot fetch a newer token of the store with the keytab: %s", error)
            return False
        return not fetched.problems

    async def _try(self, token: StoreToken) -> None:
        secrets = {contract.SECRET_STORE_TOKEN: token.text.encode()}
        await self._try_at(self._description.application_dir, secrets)

    async def _try_other(self, token: OtherToken) -> None:
        if any(each.name == token.name for each in self._description.other_hdfs):
            # Only tokens of HDFS can be tested, because the master itself does not use other services.
            secrets = {contract.SECRET_OTHER_TOKEN_PREFIX + token.name: token.text.encode()}
            await self._try_at(_root(token.name), secrets)

    async def _try_at(self, uri: str, secrets: dict[str, bytes]) -> None:
        try:
            await wait_with_timeout(asyncio.to_thread(self._look_with, uri, secrets), _LOOK_SECONDS)
        except StorageError as error:
            raise TokenRefusedError(f"the store does not accept the new token: {error}") from error
        except asyncio.TimeoutError:
            raise TokenRefusedError(f"the store has not answered within {_LOOK_SECONDS:g} s") from None

    def _look_with(self, uri: str, secrets: dict[str, bytes]) -> None:
        with open_application_store(self._description, secrets) as storage:
            storage.exists(uri)

    def _look_at_all(self) -> None:
        self._storage.exists(self._description.application_dir)
        for each in self._description.other_hdfs:
            self._storage.exists(_root(each.name))

    def _use(self, token: StoreToken) -> None:
        replace_store_token(self._credentials, token)
        self._storage.take_token(token.text)
        for other in token.others:
            self._storage.take_token(other.text, other.name)
        self._newest = self.newer = token
        self._renewed.set()
        self._brought.set()
        log.info("using newer tokens, valid until %s", moment(_life(token).until_ms))
        for listener in self.listeners:
            listener(token)


def _is_newer(token: Union[StoreToken, OtherToken], present: Union[StoreToken, OtherToken]) -> bool:
    """Return whether a token is newer. Raise TokenRefusedError if its owner differs or it cannot be parsed."""
    try:
        about, known = token.id, present.id
    except CredentialsError as error:
        raise TokenRefusedError(str(error)) from error
    if about.owner != known.owner:
        raise TokenRefusedError(f"the token belongs to {about.owner}, the application's token to {known.owner}")
    return about.issued_ms >= known.issued_ms and (token.text, token.until_ms) != (present.text, present.until_ms)


def _life(token: StoreToken) -> TokenLife:
    lives = [TokenLife(token.id.issued_ms, token.until_ms)]
    lives += [TokenLife(each.id.issued_ms, each.until_ms) for each in token.others]
    return min(lives, key=lambda life: life.until_ms)


def _root(name: str) -> str:
    return f"hdfs://{name}/"


_CHECK_KEYTAB = "check the connection's keytab and principal"
_FILE = Path(".tony-keytab")  # in the container's directory, because Kerberos libraries read keytabs only from files


class KeytabTokens:
    """Fetches newer tokens with a keytab, for the store and the other services that the application names."""

    def __init__(
        self, description: ApplicationDescription, webhdfs: WebHdfsConfig, keytab: bytes, principal: str
    ) -> None:
        self._description = description
        self._webhdfs = webhdfs
        self._keytab = keytab
        self._principal = principal
        self._tickets: Optional[Tickets] = None

    @classmethod
    def of(cls, description: ApplicationDescription, secrets: Mapping[str, bytes]) -> Optional[KeytabTokens]:
        """Create the object, or return None if the connection has no keytab or the store is not HDFS."""
        keytab, webhdfs = secrets.get(contract.SECRET_KEYTAB), description.webhdfs
        if keytab is None or webhdfs is None:
            return None
        principal = secrets.get(contract.SECRET_PRINCIPAL, b"").decode()
        return cls(description, webhdfs, keytab, principal)

    def newer(self) -> NewerTokens:
        """Fetch newer tokens and renew each token once, because only a renewal returns the expiry. Blocks.

        Raises StorageError, also if Kerberos issues no ticket.
        """
        try:
            return self._get()
        except (GssError, OSError, ValueError) as error:
            uri = self._description.application_dir
            raise StorageAuthError(uri, "get a token for", str(error), _CHECK_KEYTAB) from error

    def _get(self) -> NewerTokens:
        if self._tickets is None:
            write_private_file(_FILE, self._keytab)
            self._tickets = Tickets.of_keytab(
                _FILE.absolute(), self._principal, partial(spnego_error, advice=_CHECK_KEYTAB)
            )
        negotiate, description = self._tickets.negotiate, self._description
        with ExitStack() as stack:

            def hdfs(webhdfs: WebHdfsConfig) -> WebHdfsStorage:
                return stack.enter_context(closing(WebHdfsStorage(webhdfs, negotiate=negotiate)))

            others: dict[str, TokenServer] = {each.name: hdfs(each.webhdfs) for each in description.other_hdfs}
            if description.key_server:
                others[description.key_server] = KeyServer(description.key_server, self._webhdfs, negotiate)
            return fetch_newer_tokens(hdfs(self._webhdfs), others, description.user)
