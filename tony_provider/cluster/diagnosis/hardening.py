"""What should be set on a cluster that several users share: docs/security.md's list, as far as ``/conf`` has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

Settings = Mapping[str, str]
"""A daemon's configuration: values by name."""

_STORE = "yarn.resourcemanager.store.class"
_ZOOKEEPER_ACL = "yarn.resourcemanager.zk-acl"
_FULL_ACCESS = "world:anyone:rwcda"  # YARN's default of it
_LINUX_EXECUTOR = "LinuxContainerExecutor"
_EXECUTOR = "yarn.nodemanager.container-executor.class"
_LIMIT_USERS = "yarn.nodemanager.linux-container-executor.nonsecure-mode.limit-users"
_KERBEROS = "hadoop.security.authentication"
_AUTHORIZATION = "hadoop.security.authorization"


@attrs.frozen
class Hardening:
    """One setting of the list."""

    name: str
    fits: Callable[[str, Settings], bool]  # whether this value of it, in this configuration, is as it should be
    otherwise: str  # what follows where it is not
    advice: str


def _is(wanted: str) -> Callable[[str, Settings], bool]:
    return lambda value, _: value.strip().lower() == wanted.lower()


def _limits_users(value: str, settings: Settings) -> bool:
    """Of no meaning with Kerberos, or without that executor."""
    relevant = settings.get(_KERBEROS) != "kerberos" and settings.get(_EXECUTOR, "").endswith(_LINUX_EXECUTOR)
    return not relevant or value.lower() == "false"


def _store_is_closed(value: str, settings: Settings) -> bool:
    """Of a directory its rights do not show here."""
    if not value.endswith("ZKRMStateStore"):
        return True
    return settings.get(_ZOOKEEPER_ACL, _FULL_ACCESS) != _FULL_ACCESS


OF_RESOURCE_MANAGER = (
    Hardening(_KERBEROS, _is("kerberos"), "everybody is who they say they are", "set up Kerberos"),
    Hardening(
        "yarn.http.policy", _is("HTTPS_ONLY"), "secrets pass in clear at each submission", "set it to HTTPS_ONLY"
    ),
    Hardening(
        _EXECUTOR,
        lambda value, _: value.endswith(_LINUX_EXECUTOR),
        "the containers of all users run as one, and can read each other's",
        "set it to org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor",
    ),
    Hardening(_LIMIT_USERS, _limits_users, "the containers of all users run as one all the same", "set it to false"),
    Hardening("yarn.acl.enable", _is("true"), "everybody sees and kills every application", "set it to true"),
    Hardening(
        "yarn.admin.acl",
        lambda value, _: "*" not in value,
        "everybody is an administrator",
        "name the administrators in it",
    ),
    Hardening(
        "hadoop.rpc.protection",
        _is("privacy"),
        "application masters and the ResourceManager speak in clear",
        "set it to privacy",
    ),
    Hardening(
        "yarn.resourcemanager.proxy-user-privileges.enabled",
        _is("false"),
        "the ResourceManager may act for users",
        "set it to false, unless jobs outlive their first HDFS token",
    ),
    Hardening(
        _STORE,
        _store_is_closed,
        "whoever reaches ZooKeeper can read the secrets of applications",
        f"set {_ZOOKEEPER_ACL} to the ResourceManagers' own identity",
    ),
    Hardening(
        "yarn.nodemanager.delete.debug-delay-sec",
        _is("0"),
        "containers' directories stay on the nodes after their end",
        "set it to 0",
    ),
)

OF_NAMENODE = (
    Hardening(
        _AUTHORIZATION,
        _is("true"),
        "everybody who may ask reads the logs of NameNodes and DataNodes, with tokens of HDFS that others use",
        "set it to true, and name who may read them in dfs.cluster.administrators; close their directories, too",
    ),
    Hardening("dfs.http.policy", _is("HTTPS_ONLY"), "files and tokens pass in clear", "set it to HTTPS_ONLY"),
    Hardening("dfs.encrypt.data.transfer", _is("true"), "what DataNodes send over RPC is in clear", "set it to true"),
    Hardening("dfs.permissions.enabled", _is("true"), "everybody reads and writes every file", "set it to true"),
    Hardening(
        "dfs.namenode.acls.enabled", _is("true"), "outputs cannot be opened to some users alone", "set it to true"
    ),
)
