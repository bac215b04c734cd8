"""Tokens that an application master fetches by itself, where the connection has given it a keytab."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.hadoop.gss import GssError, KeytabTickets
from tony_provider.runtime.private_file import write_private_file
from tony_provider.runtime.protocol.store_token import StoreToken
from tony_provider.runtime.storage import StorageAuthError, WebHdfsConfig, WebHdfsStorage

_FILE = Path(".tony-keytab")  # in the container's own directory: Kerberos's library reads a keytab from a file


class KeytabTokens:
    """Fetches newer tokens of the store as the keytab's owner."""

    def __init__(self, webhdfs: WebHdfsConfig, application_dir: str, user: str, keytab: bytes, principal: str) -> None:
        self._webhdfs = webhdfs
        self._application_dir = application_dir
        self._user = user
        self._keytab = keytab
        self._principal = principal
        self._tickets: Optional[KeytabTickets] = None

    @classmethod
    def of(cls, description: ApplicationDescription, secrets: Mapping[str, bytes]) -> Optional[KeytabTokens]:
        """None: the connection names no keytab, or the store is not HDFS."""
        keytab, webhdfs = secrets.get(contract.SECRET_KEYTAB), description.webhdfs
        if keytab is None or webhdfs is None:
            return None
        principal = secrets.get(contract.SECRET_PRINCIPAL, b"").decode()
        return cls(webhdfs, description.application_dir, description.user, keytab, principal)

    def newer(self) -> StoreToken:
        """A newer token, renewed once: so its end is known. Blocks.

        Raises StorageError, also where there is no ticket to be had.
        """
        try:
            return self._get()
        except (GssError, OSError) as error:
            raise StorageAuthError(
                self._application_dir, "get a token for", str(error), "check the connection's keytab and principal"
            ) from error

    def _get(self) -> StoreToken:
        if self._tickets is None:
            write_private_file(_FILE, self._keytab)
            self._tickets = KeytabTickets(_FILE.absolute(), self._principal)
        with closing(WebHdfsStorage(self._webhdfs, negotiate=self._tickets.negotiate)) as storage:
            text = storage.get_delegation_token(self._user)
            if text is None:
                raise GssError("HDFS gives no delegation token, as if it had no Kerberos")
            return StoreToken(text, storage.renew_delegation_token(text))
