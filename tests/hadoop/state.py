"""The state file of a cluster: what other processes need to use it, to stop it, and to know whose it is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.hadoop.config import Layout
from tests.hadoop.pairs import default_file_system
from tests.hadoop.processes import Process
from tests.hadoop.settings import (
    LOOPBACK,
    REALM,
    Addresses,
    DataNode,
    NameNode,
    NodeManager,
    ResourceManager,
    Settings,
)


@dataclass
class State:
    """`processes` are by daemon name. `owner`, if any, is the process without which the cluster has no purpose.

    `complete` once the cluster has worked: from then on data and addresses are worth keeping.
    """

    settings: Settings
    addresses: Addresses
    processes: dict[str, Process] = field(default_factory=dict)
    owner: Process | None = None
    complete: bool = False

    @property
    def rm_webapp(self) -> list[str]:
        return [f"{self.settings.scheme}://{manager.web}" for manager in self.addresses.resourcemanagers]

    @property
    def webhdfs(self) -> list[str]:
        """Base addresses, to which /webhdfs/v1 is added. A secure one goes by the name of its principal."""
        addresses = [namenode.http for namenode in self.addresses.namenodes]
        named = [each.replace(LOOPBACK, "localhost") if self.settings.secure else each for each in addresses]
        return [f"{self.settings.scheme}://{each}" for each in named]

    @property
    def fs_default(self) -> str:
        return default_file_system(self.addresses)

    @property
    def other_webhdfs(self) -> str:
        """Of the NameNode of the other nameservice."""
        other = self.addresses.other_namenode
        return f"{self.settings.scheme}://{other.http.replace(LOOPBACK, 'localhost')}" if other else ""

    @property
    def other_name(self) -> str:
        """What URIs of that nameservice name it by: its NameNode."""
        other = self.addresses.other_namenode
        return other.rpc if other else ""

    @property
    def scheduler(self) -> list[str]:
        return [manager.scheduler for manager in self.addresses.resourcemanagers]

    def summary(self, layout: Layout) -> dict[str, Any]:
        """What a user of the cluster wants to know, under names that stay."""
        known: dict[str, Any] = {
            "version": self.settings.version,
            "rm_webapp": self.rm_webapp,
            "webhdfs": self.webhdfs,
            "fs_default": self.fs_default,
            "scheduler": self.scheduler,
            "conf": {"client": str(layout.conf("client"))} | {name: str(layout.conf(name)) for name in self.processes},
        }
        if self.settings.secure:
            keytabs = {path.stem: str(path) for path in sorted(layout.kerberos.glob("*.keytab"))}
            known["kerberos"] = {"realm": REALM, "krb5_conf": str(layout.krb5_conf), "keytabs": keytabs}
        if self.settings.https:
            known["ca_file"] = str(layout.ca_file)
        return known

    def write(self, layout: Layout) -> None:
        """Replace the file in one step: readers see the old state or the new."""
        content = self.summary(layout) | {
            "settings": asdict(self.settings),
            "addresses": asdict(self.addresses),
            "processes": {name: asdict(process) for name, process in self.processes.items()},
            "owner": asdict(self.owner) if self.owner else None,
            "complete": self.complete,
        }
        draft = layout.state.with_suffix(".draft")
        draft.write_text(json.dumps(content, indent=2) + "\n")
        draft.rename(layout.state)

    @classmethod
    def read(cls, layout: Layout) -> State | None:
        """The state in the file, None when there is no file."""
        try:
            content = json.loads(layout.state.read_text())
        except FileNotFoundError:
            return None
        lists = {name: tuple(value) for name, value in content["settings"].items() if isinstance(value, list)}
        return cls(
            settings=Settings(**content["settings"] | lists),
            addresses=_addresses(content["addresses"]),
            processes={name: Process(**process) for name, process in content["processes"].items()},
            owner=Process(**content["owner"]) if content["owner"] else None,
            complete=content["complete"],
        )


def _addresses(content: dict[str, Any]) -> Addresses:
    return Addresses(
        namenodes=tuple(NameNode(**each) for each in content["namenodes"]),
        datanodes=tuple(DataNode(**each) for each in content["datanodes"]),
        resourcemanagers=tuple(ResourceManager(**each) for each in content["resourcemanagers"]),
        nodemanagers=tuple(NodeManager(**each) for each in content["nodemanagers"]),
        kdc=content["kdc"],
        other_namenode=NameNode(**other) if (other := content.get("other_namenode")) else None,
        kms=content.get("kms", ""),
        httpfs=content.get("httpfs", ""),
    )
