"""Who may reach an application master over HTTP, and where, by the ResourceManager's own settings."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from tony_provider.cluster.errors import ConfigurationHidden
from tony_provider.cluster.yarn.rest import YarnRest
from tony_provider.runtime.address import canonical_host

_ANY = ("0.0.0.0", "::", "[::]", "")  # noqa: S104 - read, not bound


def proxies(rest: YarnRest, schedulers: Sequence[str]) -> list[str]:
    """Return the hosts of YARN's web proxies, as Hadoop's AmIpFilter gets them.

    These are the host of the stand-alone proxy, otherwise the hosts of all ResourceManagers. If the ResourceManager
    hides its configuration, these are the hosts of the connection's addresses. ``schedulers`` are the addresses
    (``host:port``) at which masters reach the ResourceManagers. Their hosts replace localhost, because localhost is
    another machine for the master.
    """
    try:
        if address := rest.setting("yarn.web-proxy.address"):
            found = [_host(address, rest)]
        else:
            found = [_host(address, rest) for address in _resource_managers(rest)]
    except ConfigurationHidden:
        found = [urlsplit(address).hostname or "" for address in rest.config.addresses]
    hosts: dict[str, None] = {}
    for host in found:
        hosts |= dict.fromkeys(map(_host_of, schedulers) if _is_this_machine(host) else [host])
    return list(hosts)


def proxy_address(rest: YarnRest) -> str:
    """The address of YARN's web proxy, ``http(s)://host:port``: the stand-alone one, else the ResourceManager's own."""
    own = rest.addresses[0]
    try:
        address = rest.setting("yarn.web-proxy.address")
    except ConfigurationHidden:
        return own
    return f"{urlsplit(own).scheme}://{address}" if address else own


def administrators(rest: YarnRest) -> str | None:
    """The access list ``yarn.admin.acl``; None where YARN heeds no access lists.

    Hidden, they are heeded, and nobody is one.
    """
    try:
        if not _is_true(rest.setting("yarn.acl.enable")):
            return None
        found = rest.setting("yarn.admin.acl")
    except ConfigurationHidden:
        return ""
    return "*" if found is None else found


def _resource_managers(rest: YarnRest) -> list[str]:
    """Their web addresses."""
    secure = (rest.setting("yarn.http.policy") or "").upper() == "HTTPS_ONLY"
    name = "yarn.resourcemanager.webapp.https.address" if secure else "yarn.resourcemanager.webapp.address"
    if _is_true(rest.setting("yarn.resourcemanager.ha.enabled")):
        ids = (rest.setting("yarn.resourcemanager.ha.rm-ids") or "").replace(",", " ").split()
        found = [
            rest.setting(f"{name}.{each}") or rest.setting(f"yarn.resourcemanager.hostname.{each}") for each in ids
        ]
        if addresses := [address for address in found if address]:
            return addresses
    return [rest.setting(name) or ""]


def _host(address: str, rest: YarnRest) -> str:
    """Return the host of ``host:port``, or that of the active ResourceManager if the host is a wildcard (0.0.0.0)."""
    host = _host_of(address)
    return rest.active_host() if host in _ANY else host


def _host_of(address: str) -> str:
    return urlsplit(f"//{address}").hostname or ""


_OWN_NAMES = {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}


def _is_this_machine(host: str) -> bool:
    return host.lower() in _OWN_NAMES or canonical_host(host) in ("127.0.0.1", "::1")


def _is_true(value: str | None) -> bool:
    return (value or "").lower() == "true"
