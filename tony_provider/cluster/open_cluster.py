"""Open the cluster and the store that a connection's settings name.

Only the module of the configured backend is imported, because the YARN modules load slowly and would delay commands.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

from tony_provider.cluster.errors import ConfigurationHidden, ConnectionProblem
from tony_provider.cluster.interface import Cluster, Pages
from tony_provider.cluster.settings import CA_FILE_ADVICE, NO_KEY_SERVER, Settings, YarnSettings, ca_file_problem
from tony_provider.cluster.tables import HiveMetastore
from tony_provider.runtime.application import OtherHdfs
from tony_provider.runtime.common.files import UnsafeDirectoryError, expect_own_directory
from tony_provider.runtime.storage import local_path, uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.stores import open_storage
from tony_provider.runtime.storage.webhdfs.key_server import KeyServer
from tony_provider.runtime.storage.webhdfs.store import SCHEMES, WebHdfsStorage
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig, spnego_error

if TYPE_CHECKING:
    from tony_provider.cluster.yarn.credentials import StoreTokens
    from tony_provider.cluster.yarn.rest import YarnRest


VIEWFS = "viewfs"  # scheme of URIs that Hadoop's clients map to other URIs by their own configuration


@attrs.frozen
class OpenCluster:
    """An open cluster, the store with the staging directory, and the nodes' access to this store."""

    settings: Settings
    cluster: Cluster
    storage: Storage
    staging_dir: str  # URI
    nodes_webhdfs: WebHdfsConfig | None  # the nodes' access to the store; None if the store is not WebHDFS
    tokens: StoreTokens | None = None  # None without Kerberos or WebHDFS
    other_hdfs: list[OtherHdfs] = attrs.field(factory=list)  # further HDFS clusters, and how nodes access them
    metastore: HiveMetastore | None = None  # None if the connection names none

    def pages(self, application_id: str, application_dir: str) -> Pages:
        """Return the application's pages, including the page of its files. Raises ClusterError."""
        pages = self.cluster.pages(application_id)
        if self.nodes_webhdfs is None:
            return pages
        # The NameNode's file browser reads the path from the URL's fragment. It shows logs once they are on the store.
        path = uris.parse(application_dir).path
        return attrs.evolve(pages, files=f"{self.nodes_webhdfs.addresses[0]}/explorer.html#{quote(path)}")

    def close(self) -> None:
        self.cluster.close()
        self.storage.close()
        if self.tokens:
            self.tokens.close()


def open_cluster(settings: Settings) -> OpenCluster:
    """Open the cluster and the store. Raises ConnectionProblem.

    For YARN, this may send a request, so it also raises ClusterUnreachable and ClusterAuthError.
    """
    if settings.yarn is not None:
        return _open_yarn(settings, settings.yarn)
    return _open_local(settings)


def _open_local(settings: Settings) -> OpenCluster:
    from tony_provider.cluster.local.local_cluster import LocalCluster

    if settings.local is None or settings.staging_dir is None:
        raise ConnectionProblem("a local cluster needs a staging directory")
    if uris.scheme(settings.staging_dir) in SCHEMES:
        raise ConnectionProblem("a local cluster's staging_dir must be a directory on this machine, not on HDFS")
    staging_dir = str(uris.parse(settings.staging_dir))
    # Other users must not write to these directories, because this user runs files from both, and signals processes
    # whose PIDs are in the files.
    for field, directory in (("staging_dir", local_path(staging_dir)), ("local_root", settings.local.root)):
        try:
            expect_own_directory(directory)
        except (UnsafeDirectoryError, OSError) as error:
            raise ConnectionProblem(f"{field} of the tony connection cannot be used: {error}") from error
    cluster = LocalCluster(settings.local)
    if settings.proxy_user not in (None, cluster.user):
        raise ConnectionProblem(f"the local backend runs jobs as {cluster.user}, never as {settings.proxy_user}")
    storage = open_storage(staging_dir, confined=True)
    storage.object_store_variables = settings.object_store
    return OpenCluster(settings, cluster, storage, staging_dir, nodes_webhdfs=None)


def _open_yarn(settings: Settings, yarn: YarnSettings) -> OpenCluster:
    from tony_provider.cluster.yarn.credentials import (
        HdfsClusters,
        KeyServerAccess,
        StoreTokens,
        http_logins,
        own_tickets,
        ticket,
    )
    from tony_provider.cluster.yarn.yarn_cluster import YarnCluster

    files = ((yarn.verify, yarn.resource_managers), (yarn.webhdfs.ca_file or True, yarn.webhdfs.addresses))
    for file, addresses in files:
        if unusable := ca_file_problem(file, addresses):
            raise ConnectionProblem(f"{unusable}; {CA_FILE_ADVICE}")
    user = settings.proxy_user or settings.user or ticket().user
    rest = yarn_rest(yarn, user, settings.proxy_user)

    def as_who(webhdfs: WebHdfsConfig) -> WebHdfsConfig:
        # Without Kerberos the server trusts any user name, so send the user as WebHDFSHook does.
        proxy_user = settings.proxy_user if yarn.kerberos else None
        return attrs.evolve(webhdfs, user=None if yarn.kerberos else user, proxy_user=proxy_user)

    def on_nodes(webhdfs: WebHdfsConfig) -> WebHdfsConfig:
        # Nodes have no access to this machine's CA file. The token or user name of a node already names the proxy user.
        return attrs.evolve(webhdfs, ca_file=yarn.nodes_ca_file, proxy_user=None)

    webhdfs = as_who(yarn.webhdfs)
    namenodes = attrs.evolve(webhdfs, addresses=yarn.nodes_webhdfs or webhdfs.addresses)
    staging_dir = _staging_uri(settings.staging_dir or f"/user/{user}/.tony", rest)
    cluster = YarnCluster(rest, user=user, scheduler=yarn.scheduler, autoscaling=yarn.autoscaling)
    negotiate, aside = http_logins(yarn)
    metastore = None
    if yarn.hive_metastore:
        tickets = own_tickets(spnego_error) if yarn.kerberos else None
        metastore = HiveMetastore(yarn.hive_metastore, user, yarn.hive_principal, tickets, yarn.insecure_http)
    others = {each.name: WebHdfsStorage(as_who(each.webhdfs), negotiate=aside) for each in yarn.other_hdfs}
    storage = open_storage(staging_dir, webhdfs=webhdfs, negotiate=negotiate, others=others, confined=True)
    storage.object_store_variables = settings.object_store
    if not isinstance(storage, WebHdfsStorage):
        return OpenCluster(settings, cluster, storage, staging_dir, nodes_webhdfs=None, metastore=metastore)
    tokens = None
    if aside and yarn.kerberos:
        if yarn.nodes_webhdfs and not yarn.gateway:  # HttpFS issues tokens that only HttpFS accepts
            storage_of_tokens = WebHdfsStorage(namenodes, negotiate=aside)
        else:
            storage_of_tokens = storage
        open_server = partial(KeyServer, webhdfs=webhdfs, negotiate=aside)
        uri = NO_KEY_SERVER if yarn.gateway else yarn.key_server  # it is not behind the gateway
        key_server = KeyServerAccess(uri, open_server, yarn.insecure_http)
        hdfs = HdfsClusters(storage_of_tokens, uris.parse(staging_dir).authority, others, key_server, metastore)
        tokens = StoreTokens(hdfs, rest, user, yarn.rm_principal, yarn.master_keytab)
    return OpenCluster(
        settings,
        cluster,
        storage,
        staging_dir,
        on_nodes(namenodes),
        tokens,
        [OtherHdfs(each.name, on_nodes(as_who(each.webhdfs))) for each in yarn.other_hdfs],
        metastore,
    )


def yarn_rest(yarn: YarnSettings, user: str, proxy_user: str | None) -> YarnRest:
    """Return the client of the ResourceManagers' REST interface, without opening a connection.

    Raises ConnectionProblem if Kerberos is required but not installed.
    """
    from tony_provider.cluster.yarn.credentials import http_auth
    from tony_provider.cluster.yarn.rest import RestConfig, YarnRest

    return YarnRest(
        RestConfig(
            addresses=yarn.resource_managers,
            user=user,
            proxy_user=proxy_user,
            auth=http_auth(yarn),
            gateway=yarn.gateway is not None,
            verify=yarn.verify,
            trust_env=yarn.trust_env,
            timeout=yarn.timeout,
        )
    )


def _staging_uri(directory: str, rest: YarnRest) -> str:
    """Return the directory as a full URI, because NodeManagers and users cannot resolve a path without a scheme."""
    uri = str(uris.parse(directory)) if "://" in directory else uris.join(_default_file_system(rest), directory)
    if uris.scheme(uri) == VIEWFS:
        raise ConnectionProblem(
            f"{uri} is not on an HDFS but in a client-side view; set the tony connection's staging_dir to the hdfs:// "
            "URI that it maps to"
        )
    return uri


def _default_file_system(rest: YarnRest) -> str:
    try:
        default = rest.setting("fs.defaultFS")
    except ConfigurationHidden as error:
        raise ConnectionProblem(
            f"{error}; set the tony connection's staging_dir to a full URI, such as hdfs://nameservice/user/me/.tony"
        ) from error
    if default is None or uris.scheme(default) == "file":
        raise ConnectionProblem(
            "the ResourceManager's fs.defaultFS is not a shared file system; set the tony connection's staging_dir "
            "to a full URI, such as hdfs://nameservice/user/me/.tony"
        )
    return default
