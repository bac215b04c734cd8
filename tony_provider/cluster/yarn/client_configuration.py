"""What Hadoop's clients must know of the cluster, chosen from the ResourceManager's own configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Never all of it: what else a ResourceManager is configured with is not for jobs to read.
_NAMES = frozenset(
    {
        "fs.defaultFS",
        "hadoop.rpc.protection",
        "hadoop.security.auth_to_local",
        "hadoop.security.authentication",
        "hadoop.security.key.provider.path",
        "hadoop.security.token.service.use_ip",
        "dfs.client.use.datanode.hostname",
        "dfs.data.transfer.protection",
        "dfs.encrypt.data.transfer",
        "dfs.encrypt.data.transfer.algorithm",
        "dfs.encrypt.data.transfer.cipher.suites",
        "dfs.encryption.key.provider.uri",
        "dfs.namenode.kerberos.principal",
        "dfs.namenode.kerberos.principal.pattern",
        "dfs.namenode.rpc-address",
        "dfs.nameservices",
    }
)
_OF_NAMESERVICES = ("dfs.client.failover.", "dfs.ha.namenodes.", "dfs.namenode.rpc-address.")
_DEFAULTS = "-default.xml"  # which every Hadoop has


def client_properties(settings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Of ``YarnRest.every_setting`` the properties that clients of HDFS need and that were set."""
    return {
        name: str(each.get("value", ""))
        for each in settings
        if (name := str(each.get("key"))) in _NAMES or name.startswith(_OF_NAMESERVICES)
        if not str(each.get("resource", "")).endswith(_DEFAULTS)
    }
