"""HDFS delegation tokens: how an application on a Kerberos cluster reaches HDFS without a ticket."""

from __future__ import annotations

import logging
import socket

from tony_provider.cluster.errors import ConfigurationHidden, StagingFailed
from tony_provider.cluster.settings import MasterKeytab
from tony_provider.cluster.yarn.rest import YarnRest
from tony_provider.runtime import contract
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, Credentials, Token
from tony_provider.runtime.protocol.store_token import StoreToken, put_store_token
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage

log = logging.getLogger(__name__)

_DEFAULT_NAMENODE_PORT = 8020  # where a URI names a NameNode without one
_DEFAULT_RM_PRINCIPAL = "yarn"


class StoreTokens:
    """Gets and cancels HDFS delegation tokens for applications.

    :param authority: of the staging directory's URI: a NameNode's host:port, or a nameservice.
    :param user: whom applications run as.
    :param rm_principal: the ResourceManager's Kerberos principal, which renews the tokens; None: it says itself.
    :param keytab: what application masters get to fetch newer tokens by themselves; None: others bring them.
    """

    def __init__(
        self,
        storage: WebHdfsStorage,
        rest: YarnRest,
        authority: str,
        user: str,
        rm_principal: str | None,
        keytab: MasterKeytab | None = None,
    ) -> None:
        self._storage = storage
        self._rest = rest
        self._authority = authority
        self._user = user
        self._rm_principal = rm_principal
        self._keytab = keytab

    def fetch(self, credentials: Credentials) -> str:
        """Get a token for the user we are and put it into ``credentials``; returns it, for ``cancel``.

        Raises StorageError, StagingFailed when HDFS gives none.
        """
        if self._keytab is not None:
            credentials.secrets.update(self._keytab_secrets(self._keytab))
        service = self._service()  # before there is a token that its failure would leave behind
        token = self._token(self._renewer())
        put_store_token(credentials, token, [service])
        return token

    def pretend(self, credentials: Credentials) -> None:
        """Put an empty token where ``fetch`` would put one, for people to see; HDFS is asked for nothing."""
        empty = Token(b"", b"", HDFS_TOKEN, "")
        put_store_token(credentials, empty.to_url_string(), [self._service()])

    def newer(self) -> StoreToken:
        """A token for an application of ours that runs already: one that we renew ourselves, not the ResourceManager.

        So its end is known, which HDFS tells whoever renews it; it does until then without anybody's help. Raises
        StorageError, StagingFailed when HDFS gives none.
        """
        text = self._token(self._user)
        return StoreToken(text, self._storage.renew_delegation_token(text))

    def cancel(self, token: str) -> None:
        """Cancel a token that no application will use. Failing to is only logged, since it expires."""
        try:
            self._storage.cancel_delegation_token(token)
        except StorageError as error:
            log.info("A delegation token could not be cancelled: %s", error)

    def _token(self, renewer: str) -> str:
        token = self._storage.get_delegation_token(renewer)
        if token is None:
            raise StagingFailed(
                "HDFS gives no delegation token, as if it had no Kerberos; set `kerberos` to false in the tony "
                "connection, or name a secure NameNode"
            )
        return token

    def _keytab_secrets(self, keytab: MasterKeytab) -> dict[str, bytes]:
        if keytab.user != self._user:
            raise StagingFailed(
                f"the connection's master_principal {keytab.principal} is not {self._user}, whom the job runs as: its "
                "tokens would open another user's files"
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
                log.info("Taking `yarn` for the ResourceManager's principal: %s", error)
        # HDFS maps it to a short name by its auth_to_local rules, which must give the ResourceManager's user.
        return (principal or _DEFAULT_RM_PRINCIPAL).replace("_HOST", self._rest.active_host())

    def _service(self) -> str:
        """What HDFS's clients look a token up by: org.apache.hadoop.security.SecurityUtil.buildTokenService."""
        host, _, port = self._authority.partition(":")
        if not port and self._is_nameservice(host):
            return f"ha-hdfs:{host}"
        try:
            address = socket.gethostbyname(host)
        except OSError as error:
            raise StagingFailed(f"the NameNode's host {host!r} has no address here: {error}") from error
        return f"{address}:{port or _DEFAULT_NAMENODE_PORT}"

    def _is_nameservice(self, name: str) -> bool:
        try:
            known = self._rest.setting("dfs.nameservices") or ""
        except ConfigurationHidden:
            return True  # a host without a port is the rarer case
        return name in known.replace(",", " ").split()
