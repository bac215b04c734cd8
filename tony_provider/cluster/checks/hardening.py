"""Checks of security settings for a cluster with several users.

The list is the part of ``docs/security.md`` that the daemons' ``/conf`` shows. Further checks concern the staging
directory's permissions and the connection's ``network``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from tony_provider.cluster.checks.daemons import DaemonChecks
from tony_provider.cluster.findings import Finding, ok, skipped, warning
from tony_provider.cluster.http import Unanswered, json_of
from tony_provider.runtime.jobspec.model import Network
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageError

DaemonConfiguration = Mapping[str, str]
"""A daemon's configuration: values by name."""

_STORE = "yarn.resourcemanager.store.class"
_ZOOKEEPER_ACL = "yarn.resourcemanager.zk-acl"
_FULL_ACCESS = "world:anyone:rwcda"  # default of the ZooKeeper ACL
_LINUX_EXECUTOR = "LinuxContainerExecutor"
_EXECUTOR = "yarn.nodemanager.container-executor.class"
_LIMIT_USERS = "yarn.nodemanager.linux-container-executor.nonsecure-mode.limit-users"
_KERBEROS = "hadoop.security.authentication"
_AUTHORIZATION = "hadoop.security.authorization"


@attrs.frozen
class Hardening:
    """One recommended setting of a daemon."""

    name: str
    fits: Callable[[str, DaemonConfiguration], bool]  # whether a value is secure in a configuration
    otherwise: str  # the consequence of an insecure value
    advice: str


def _is(wanted: str) -> Callable[[str, DaemonConfiguration], bool]:
    return lambda value, _: value.strip().lower() == wanted.lower()


def _limits_users(value: str, settings: DaemonConfiguration) -> bool:
    """Return whether the value is false or has no effect, as with Kerberos or without the Linux executor."""
    has_kerberos = _is("kerberos")(settings.get(_KERBEROS, ""), settings)
    relevant = not has_kerberos and settings.get(_EXECUTOR, "").strip().endswith(_LINUX_EXECUTOR)
    return not relevant or _is("false")(value, settings)


def _store_is_closed(value: str, settings: DaemonConfiguration) -> bool:
    """Return whether ZooKeeper restricts access to the state store.

    Return True for another store, because ``/conf`` does not show the permissions of a directory.
    """
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

HARDENING = "Hardening"
_OTHERS = 0o077  # permissions of group and others


def check_hardening(daemons: DaemonChecks, wanted: Sequence[Hardening]) -> Iterator[Finding]:
    """Check the configuration that an active daemon shows."""
    try:
        answer = json_of(daemons.way.send("GET", f"{daemons.active[0]}/conf?format=json"))
    except Unanswered as error:
        answer, why = {}, error.detail
    else:
        why = "it is shown to administrators only"
    properties = answer.get("properties")
    if not isinstance(properties, list) or not properties:
        yield skipped(HARDENING, f"the configuration of the {daemons.kind} cannot be looked at: {why}")
        return
    settings = {str(each.get("key")): str(each.get("value")) for each in properties if isinstance(each, dict)}
    for each in wanted:
        yield _judge(each, settings)


def _judge(wanted: Hardening, settings: dict[str, str]) -> Finding:
    what = f"{HARDENING} {wanted.name}"
    value = settings.get(wanted.name)
    if value is None:
        return skipped(what, "it is not in the configuration that was shown")
    if wanted.fits(value, settings):
        return ok(what, value or "empty")
    return warning(what, f"is {value!r}, so {wanted.otherwise}", wanted.advice)


def check_rights(storage: Storage, staging_dir: str, user: str) -> Iterator[Finding]:
    """Check the staging directory's owner, and that no other user may read it."""
    what = f"{HARDENING} of {staging_dir}"
    try:
        found = storage.status(staging_dir)
    except StorageError:
        yield skipped(what, "it is not there yet; the first job makes it, for its owner alone (0700)")
        return
    if found.owner and user and found.owner != user:
        advice = f"give it to {user}, or name another `staging_dir`"
        yield warning(what, f"it belongs to {found.owner}, who can change what the jobs of {user} run", advice)
    elif found.permission is not None and found.permission & _OTHERS:
        yield warning(what, f"its rights are {found.permission:04o}: others may look into it", "set them to 0700")
    else:
        yield ok(what, "its owner's alone")


def check_network(network: Network | None) -> Iterator[Finding]:
    """Check that the connection states who can reach the ports of jobs."""
    what = f"{HARDENING} network"
    if network is None:
        yield warning(
            what,
            "nobody has said who can reach the ports of jobs' processes, which frameworks mostly open to everybody",
            "see docs/security.md, then set `network` to isolated or trusted",
        )
    else:
        yield ok(what, network.value)
