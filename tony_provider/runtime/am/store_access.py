"""The application master's access to its store on clusters with Kerberos: a token that ends, and newer ones."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Callable, Optional

from tony_provider.runtime import contract
from tony_provider.runtime.am.keytab_tokens import KeytabTokens
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.application_store import open_application_store
from tony_provider.runtime.clock import epoch_ms, moment
from tony_provider.runtime.deadline import within
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol.store_token import StoreToken, replace_store_token, store_token
from tony_provider.runtime.protocol.token_life import TokenLife
from tony_provider.runtime.storage import Storage, StorageAuthError, StorageError

log = logging.getLogger(__name__)

_LOOK_SECONDS = 20.0  # for the store to say whether it takes a token
_OWN_SHARE = 0.4  # of a token's life, after which the master fetches another by its keytab: before others bring one
_PAUSE = 30.0  # seconds after such a try that has failed
_WAIT_SECONDS = 900.0  # of a master whose token has ended, for somebody who brings a newer one


class TokenRefusedError(Exception):
    """A token that was brought is not taken; the message says why."""


class StoreAccess:
    """The token that the master and all its containers reach the store by, and those who are told of a newer one.

    A newer one must be of the same owner, and the store must take it. Used within a running event loop.
    """

    def __init__(self, description: ApplicationDescription, credentials: Credentials, storage: Storage) -> None:
        """``credentials`` are the master's own, which later containers get too. Raises CredentialsError."""
        self._description = description
        self._credentials = credentials
        self._storage = storage
        self._keytab = KeytabTokens.of(description, credentials.secrets)
        self._newest = store_token(credentials)
        self._turn = asyncio.Lock()
        self._renewed = asyncio.Event()  # at least once
        self._brought = asyncio.Event()  # since ``mind`` has looked
        self.newer: Optional[StoreToken] = None  # than those that containers were launched with, perhaps
        self.listeners: list[Callable[[StoreToken], None]] = []  # told of each newer one

    @property
    def life(self) -> Optional[TokenLife]:
        """Of the newest token; None: the store asks for none."""
        return _life(self._newest) if self._newest else None

    def trouble(self, now_ms: int) -> Optional[str]:
        """What people are to know when the token is about to end; None: nothing yet."""
        life = self.life
        if life is None or now_ms < life.last_quarter_ms:
            return None
        if now_ms < life.until_ms:
            return f"the application's HDFS token ends at {moment(life.until_ms)}, and nobody has brought a newer one"
        return f"the application's HDFS token has ended at {moment(life.until_ms)}: nothing gets to the store any more"

    async def until_it_holds(self) -> None:
        """Wait until the store takes the token. Raises StorageError when nobody brings one that it does.

        A later master begins with the token that its application was submitted with, which may have ended since.
        """
        if self._newest is None:
            return
        try:
            await asyncio.to_thread(self._storage.exists, self._description.application_dir)
        except StorageAuthError as error:
            if await self._fetch():
                return
            log.warning("waiting %g s for a newer token of the store: %s", _WAIT_SECONDS, error)
            try:
                await within(self._renewed.wait(), _WAIT_SECONDS)
            except asyncio.TimeoutError:
                raise error from None
        except StorageError as error:
            log.warning("whether the store takes the token cannot be seen: %s", error)

    async def mind(self, seconds: float, last_call: Callable[[str], None]) -> None:
        """Call ``last_call``, with the reason, when a token that nobody has replaced is about to end.

        ``seconds`` before that, while a checkpoint can still be copied, but not before the token's last quarter. Ends
        where the store asks for no token.
        """
        called = -1  # the end of the token that was called for
        while (life := self.life) is not None:
            self._brought.clear()
            left: Optional[float] = None
            if called != life.until_ms:
                at_ms = max(life.last_quarter_ms, life.until_ms - int(seconds * 1000))
                left = (at_ms - epoch_ms()) / 1000
                if left <= 0:
                    called, left = life.until_ms, None
                    last_call(f"the HDFS token ends at {moment(life.until_ms)}")
            with suppress(asyncio.TimeoutError):
                await within(self._brought.wait(), left)

    async def take(self, token: StoreToken) -> TokenLife:
        """Use a newer token from now on. Idempotent. Raises TokenRefusedError."""
        async with self._turn:
            newest = self._newest
            if newest is None:
                raise TokenRefusedError("the application was submitted without a token: its store asks for none")
            try:
                about, present = token.id, newest.id
            except CredentialsError as error:
                raise TokenRefusedError(str(error)) from error
            if about.owner != present.owner:
                raise TokenRefusedError(f"a token of {about.owner}; the application's own is of {present.owner}")
            if about.issued_ms >= present.issued_ms and token != newest:
                await self._try(token)
                self._use(token)
                return _life(token)
            return _life(newest)

    async def fetch(self) -> None:
        """Fetch newer tokens in time, for ever. Ends where the master has no keytab."""
        while self._keytab is not None and (life := self.life) is not None:
            wait_ms = life.issued_ms + (life.until_ms - life.issued_ms) * _OWN_SHARE - epoch_ms()
            await asyncio.sleep(max(0.0, wait_ms / 1000))
            if self.life == life and not await self._fetch():
                await asyncio.sleep(_PAUSE)

    async def _fetch(self) -> bool:
        """Whether there is a newer one."""
        if self._keytab is None:
            return False
        try:
            await self.take(await asyncio.to_thread(self._keytab.newer))
        except (StorageError, TokenRefusedError) as error:
            log.warning("no newer token of the store by the keytab: %s", error)
            return False
        return True

    async def _try(self, token: StoreToken) -> None:
        try:
            await within(asyncio.to_thread(self._look_with, token), _LOOK_SECONDS)
        except StorageError as error:
            raise TokenRefusedError(f"the store does not take it: {error}") from error
        except asyncio.TimeoutError:
            raise TokenRefusedError(f"the store has not answered within {_LOOK_SECONDS:g} s") from None

    def _look_with(self, token: StoreToken) -> None:
        secrets = {contract.SECRET_STORE_TOKEN: token.text.encode()}
        with open_application_store(self._description, secrets) as storage:
            storage.exists(self._description.application_dir)

    def _use(self, token: StoreToken) -> None:
        replace_store_token(self._credentials, token.text)
        self._storage.take_token(token.text)
        self._newest = self.newer = token
        self._renewed.set()
        self._brought.set()
        log.info("a newer token of the store, which holds until %s", moment(token.until_ms))
        for listener in self.listeners:
            listener(token)


def _life(token: StoreToken) -> TokenLife:
    return TokenLife(token.id.issued_ms, token.until_ms)
