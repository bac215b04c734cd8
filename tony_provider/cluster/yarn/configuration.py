"""Read settings of the cluster from the ResourceManager's configuration.

The settings are the client configuration for jobs, the timeouts for lost masters, and the addresses and access lists
for application masters. Many functions return a default if the cluster hides its configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from tony_provider.cluster.errors import ConfigurationHidden
from tony_provider.cluster.yarn.rest import Setting, YarnRest
from tony_provider.runtime.common.network import canonical_host


def setting(rest: YarnRest, name: str, default: str = "", *, hidden: str | None = None) -> str:
    """Return a property of the ResourceManager's configuration, or ``default`` if it is not set.

    If the cluster hides its configuration, return ``hidden``, which defaults to ``default``.
    """
    try:
        value = rest.setting(name)
    except ConfigurationHidden:
        return default if hidden is None else hidden
    return default if value is None else value


# The settings that jobs may read. This is an allow list, because other settings may be confidential.
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
_DEFAULTS = "-default.xml"  # suffix of the files with Hadoop's defaults


def client_properties(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return the properties that HDFS clients need, without defaults."""
    return {
        name: each.value
        for name, each in settings.items()
        if (name in _NAMES or name.startswith(_OF_NAMESERVICES)) and not each.source.endswith(_DEFAULTS)
    }


# YARN's time limits for a master without heartbeats and for a node without heartbeats, with their defaults in seconds.
_EXPIRIES = {
    "yarn.am.liveness-monitor.expiry-interval-ms": 900.0,
    "yarn.nm.liveness-monitor.expiry-interval-ms": 600.0,
}
_NEXT_MASTER = 300.0  # seconds until the next master runs: busy queue, download, start, ResourceManager failover
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def master_lost_after(rest: YarnRest) -> float:
    """Return the seconds after which no new application master can replace a dead one, by the cluster's settings.

    Use YARN's defaults if the cluster hides its configuration.
    """
    return max(parse_seconds(setting(rest, name), default) for name, default in _EXPIRIES.items()) + _NEXT_MASTER


def parse_seconds(text: str, default: float) -> float:
    """Convert a Hadoop time, ``600000`` (milliseconds) or ``10m``, to seconds.

    Return ``default`` for any other text.
    """
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] and match[2] not in _UNITS):
        return default
    return int(match[1]) * _UNITS[match[2] or "ms"]


_RESOLVER = "hadoop.security.saslproperties.resolver.class"


def rpc_protection(rest: YarnRest) -> str:
    """Return ``hadoop.rpc.protection``, or "" if it is hidden or if a resolver class decides for each client."""
    return "" if setting(rest, _RESOLVER) else setting(rest, "hadoop.rpc.protection")


_WEB_PORT = 8088  # default in yarn-default.xml; callers use only the host of the address
_ANY = ("0.0.0.0", "::", "[::]", "")  # noqa: S104 - read, not bound


def web_proxy_hosts(rest: YarnRest, schedulers: Sequence[str]) -> list[str]:
    """Return the hosts of YARN's web proxies, as Hadoop's AmIpFilter gets them.

    These are the host of the stand-alone proxy if there is one, otherwise the hosts of all ResourceManagers. If the
    configuration is hidden, use the hosts in the connection's addresses.

    ``schedulers`` are the addresses (``host:port``) at which masters reach the ResourceManagers. The hosts of these
    addresses replace localhost, which is another machine for the master.
    """
    try:
        if address := rest.setting("yarn.web-proxy.address"):
            found = [_host(address, rest)]
        else:
            found = [_host(address, rest) for address in _resource_managers(rest)]
    except ConfigurationHidden:
        addresses = [] if rest.config.gateway else rest.config.addresses
        found = [urlsplit(address).hostname or "" for address in addresses] or [_OF_SCHEDULERS]
    hosts: dict[str, None] = {}
    for host in found:
        hosts |= dict.fromkeys(map(_host_of, schedulers) if _is_this_machine(host) else [host])
    return list(hosts)


def web_proxy_address(rest: YarnRest) -> str:
    """Return the address of YARN's web proxy, ``http(s)://host:port``.

    This is the address of the stand-alone proxy if there is one, otherwise of the ResourceManager.
    """
    own, address = rest.addresses[0], setting(rest, "yarn.web-proxy.address")
    return f"{urlsplit(own).scheme}://{address}" if address else own


def administrators_acl(rest: YarnRest) -> str | None:
    """Return the access list ``yarn.admin.acl``, or None if YARN does not enforce access lists.

    Return "" (no administrators) if the configuration is hidden.
    """
    if not _is_true(setting(rest, "yarn.acl.enable", hidden="true")):
        return None
    return setting(rest, "yarn.admin.acl", "*", hidden="")


def ha_addresses(rest: YarnRest, name: str, port: int) -> dict[str, str]:
    """Return the addresses of the ResourceManagers by id, or {} if the cluster has no high availability.

    ``name`` is the property with the address. If a ResourceManager has no such property, its address is its configured
    host with ``port``, or empty if it has no host either. Raises ConfigurationHidden.
    """
    if not _is_true(rest.setting("yarn.resourcemanager.ha.enabled")):
        return {}
    found = {}
    for each in (rest.setting("yarn.resourcemanager.ha.rm-ids") or "").replace(",", " ").split():
        host = rest.setting(f"yarn.resourcemanager.hostname.{each}")
        found[each] = rest.setting(f"{name}.{each}") or (f"{host}:{port}" if host else "")
    return found


def _resource_managers(rest: YarnRest) -> list[str]:
    secure = (rest.setting("yarn.http.policy") or "").upper() == "HTTPS_ONLY"
    name = "yarn.resourcemanager.webapp.https.address" if secure else "yarn.resourcemanager.webapp.address"
    found = [address for address in ha_addresses(rest, name, _WEB_PORT).values() if address]
    return found or [rest.setting(name) or ""]


def _host(address: str, rest: YarnRest) -> str:
    """Return the host of ``host:port``, or the active ResourceManager's host for a wildcard (0.0.0.0)."""
    host = _host_of(address)
    if host not in _ANY:
        return host
    return _OF_SCHEDULERS if rest.config.gateway else rest.active_host()


def _host_of(address: str) -> str:
    return urlsplit(f"//{address}").hostname or ""


_OF_SCHEDULERS = "localhost"  # stands for the hosts of the schedulers, because a gateway's host is another machine
_OWN_NAMES = {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}


def _is_this_machine(host: str) -> bool:
    return host.lower() in _OWN_NAMES or canonical_host(host) in ("127.0.0.1", "::1")


def _is_true(value: str | None) -> bool:
    return (value or "").lower() == "true"
