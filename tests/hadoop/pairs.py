"""Two masters of a kind, one of them active: what both of them, and all who look for them, are told.

Without ZooKeeper: HadoopCluster.activate() and activate_namenode() say which one is.
"""

from __future__ import annotations

from pathlib import Path

from tests.hadoop.settings import LOOPBACK, Addresses, ResourceManager

Properties = dict[str, str]
NAMESERVICE = "tony-hdfs"
OTHER_NAMESERVICE = "tony-other"


def default_file_system(addresses: Addresses) -> str:
    """hdfs://127.0.0.1:port, or the name of a pair."""
    pair = len(addresses.namenodes) > 1
    return f"hdfs://{NAMESERVICE if pair else addresses.namenodes[0].rpc}"


def namenodes(addresses: Addresses, data: Path, scheme: str) -> Properties:
    """Where they listen; a pair writes its edits to one directory."""
    web = f"dfs.namenode.{scheme}-address"
    if len(addresses.namenodes) == 1:
        [only] = addresses.namenodes
        return {"dfs.namenode.rpc-address": only.rpc, web: only.http}
    values = {
        "dfs.nameservices": NAMESERVICE,
        f"dfs.ha.namenodes.{NAMESERVICE}": ",".join(each.name for each in addresses.namenodes),
        f"dfs.client.failover.proxy.provider.{NAMESERVICE}": (
            "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        ),
        "dfs.client.failover.sleep.base.millis": "100",
        "dfs.client.failover.sleep.max.millis": "500",
        f"dfs.namenode.shared.edits.dir.{NAMESERVICE}": f"file://{data}/shared-edits",
        "dfs.ha.automatic-failover.enabled": "false",
        # Whoever fails over has made sure that the other one is gone.
        "dfs.ha.fencing.methods": "shell(/bin/true)",
        "dfs.ha.tail-edits.period": "1",
    }
    for each in addresses.namenodes:
        values[f"dfs.namenode.rpc-address.{NAMESERVICE}.{each.name}"] = each.rpc
        values[f"{web}.{NAMESERVICE}.{each.name}"] = each.http
    if (other := addresses.other_namenode) is not None:
        values["dfs.nameservices"] = f"{NAMESERVICE},{OTHER_NAMESERVICE}"
        values[f"dfs.namenode.rpc-address.{OTHER_NAMESERVICE}"] = other.rpc
        values[f"{web}.{OTHER_NAMESERVICE}"] = other.http
    return values


def resourcemanagers(addresses: Addresses, web: str) -> Properties:
    """Where they listen; `web` is the end of the name of their web addresses."""
    if len(addresses.resourcemanagers) == 1:
        return _listening(addresses.resourcemanagers[0], web, "")
    values = {
        "yarn.resourcemanager.ha.enabled": "true",
        "yarn.resourcemanager.ha.automatic-failover.enabled": "false",
        "yarn.resourcemanager.ha.rm-ids": ",".join(each.name for each in addresses.resourcemanagers),
        "yarn.client.failover-sleep-base-ms": "100",
        "yarn.client.failover-sleep-max-ms": "500",
    }
    for manager in addresses.resourcemanagers:
        values |= _listening(manager, web, f".{manager.name}")
    return values


def _listening(manager: ResourceManager, web: str, suffix: str) -> Properties:
    return {
        f"yarn.resourcemanager.hostname{suffix}": LOOPBACK,
        f"yarn.resourcemanager.address{suffix}": manager.client,
        f"yarn.resourcemanager.scheduler.address{suffix}": manager.scheduler,
        f"yarn.resourcemanager.resource-tracker.address{suffix}": manager.tracker,
        f"yarn.resourcemanager.admin.address{suffix}": manager.admin,
        f"yarn.resourcemanager.{web}{suffix}": manager.web,
    }
