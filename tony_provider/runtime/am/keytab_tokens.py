"""Tokens that an application master fetches by itself, where the connection has given it a keytab."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.hadoop.gss import GssError, KeytabTickets
from tony_provider.runtime.newer_tokens import NewerTokens, TokenServer, fetch_newer_tokens
from tony_provider.runtime.private_file import write_private_file
from tony_provider.runtime.storage import StorageAuthError, WebHdfsConfig, WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.config import Negotiate
from tony_provider.runtime.storage.webhdfs.key_server import KeyServer
from tony_provider.runtime.storage.webhdfs.spnego_errors import as_storage_errors

_FILE = Path(".tony-keytab")  # in the container's own directory: Kerberos's library reads a keytab from a file


class KeytabTokens:
    """Fetches newer tokens of the store, and of what the application names beside it, as the keytab's owner."""

    def __init__(
        self, description: ApplicationDescription, webhdfs: WebHdfsConfig, keytab: bytes, principal: str
    ) -> None:
        self._description = description
        self._webhdfs = webhdfs
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
        return cls(description, webhdfs, keytab, principal)

    def newer(self) -> NewerTokens:
        """Newer tokens, renewed once: so their end is known. Blocks.

        Raises StorageError, also where there is no ticket to be had.
        """
        try:
            return self._get()
        except (GssError, OSError, ValueError) as error:
            raise StorageAuthError(
                self._description.application_dir,
                "get a token for",
                str(error),
                "check the connection's keytab and principal",
            ) from error

    def _get(self) -> NewerTokens:
        if self._tickets is None:
            write_private_file(_FILE, self._keytab)
            self._tickets = KeytabTickets(_FILE.absolute(), self._principal)
        negotiate, description = self._tickets.negotiate, self._description
        aside = as_storage_errors(negotiate, GssError)
        with ExitStack() as stack:

            def hdfs(webhdfs: WebHdfsConfig, speaks: Negotiate) -> WebHdfsStorage:
                return stack.enter_context(closing(WebHdfsStorage(webhdfs, negotiate=speaks)))

            others: dict[str, TokenServer] = {each.name: hdfs(each.webhdfs, aside) for each in description.other_hdfs}
            if description.key_server:
                others[description.key_server] = KeyServer(description.key_server, self._webhdfs, aside)
            return fetch_newer_tokens(hdfs(self._webhdfs, negotiate), others, description.user)
