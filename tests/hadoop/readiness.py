"""Whether a cluster's services work, asked of themselves; and what is set up once they do."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.hadoop.client import Client, HttpError
from tests.hadoop.config import NODE_LABEL, Layout
from tests.hadoop.settings import ORDINARY_USERS
from tests.hadoop.state import State


@dataclass(frozen=True)
class Services:
    """HDFS and YARN of one cluster, seen by their administrators."""

    state: State
    layout: Layout

    def client(self, user: str) -> Client:
        return Client(user, self.layout, self.state.settings.secure)

    @property
    def hdfs_admin(self) -> Client:
        """HDFS's superuser: whoever the NameNode runs as."""
        return self.client("hdfs" if self.state.settings.secure else getpass.getuser())

    @property
    def yarn_admin(self) -> Client:
        return self.client("yarn" if self.state.settings.secure else getpass.getuser())

    def hdfs_lacks(self) -> str:
        """What HDFS waits for, in words; empty when it takes reads and writes."""
        try:
            base = self.active_namenode()
            if base is None:
                return "no NameNode is active"
            system = self._namenode_bean(base, "FSNamesystemState")
        except HttpError as error:
            return f"the NameNode does not answer ({error})"
        if system.get("FSState") != "Operational":
            return "the NameNode is in safe mode"
        addresses = self.state.addresses
        live, wanted = system["NumLiveDataNodes"], len(addresses.datanodes) - addresses.shares_no_datanode
        return "" if live >= wanted else f"{live} of {wanted} DataNodes are live"

    def other_hdfs_lacks(self) -> str:
        """What the HDFS of the other nameservice waits for, in words."""
        try:
            system = self._namenode_bean(self.state.other_webhdfs, "FSNamesystemState")
        except HttpError as error:
            return f"the other NameNode does not answer ({error})"
        if system.get("FSState") != "Operational" or not system["NumLiveDataNodes"]:
            return "the other NameNode is in safe mode, or has no DataNode"
        return ""

    def kms_lacks(self) -> str:
        """What the key management server waits for, in words."""
        try:
            self.client(ORDINARY_USERS[0]).get_json(f"{self._kms}/keys/names")
        except HttpError as error:
            return f"the key management server does not answer ({error})"
        return ""

    def httpfs_lacks(self) -> str:
        """What HttpFS waits for, in words."""
        address = f"{self.state.settings.scheme}://{self.state.addresses.httpfs}"
        try:
            self.client(ORDINARY_USERS[0]).get_json(f"{address}/webhdfs/v1/", op="LISTSTATUS")
        except HttpError as error:
            return f"HttpFS does not answer ({error})"
        return ""

    def make_key(self, name: str) -> None:
        """A key of the key management server."""
        about = {"name": name, "cipher": "AES/CTR/NoPadding", "length": 128}
        user = self.client(ORDINARY_USERS[0])
        user.request("POST", f"{self._kms}/keys", json.dumps(about).encode(), "application/json")

    @property
    def _kms(self) -> str:
        return f"{self.state.settings.scheme}://{self.state.addresses.kms}/kms/v1"

    def namenode_lacks(self, base: str) -> str:
        """What one NameNode waits for, in words; a standby need only answer."""
        try:
            state = self._namenode_bean(base, "NameNodeStatus").get("State")
        except HttpError as error:
            return f"the NameNode does not answer ({error})"
        return {"active": self.hdfs_lacks(), "standby": ""}.get(str(state), "the NameNode has only begun to start")

    def no_namenode_answers(self) -> str:
        """Why not, in words; empty once both of a pair can be told which one is to be active."""
        return next(filter(None, map(self.namenode_lacks, self.state.webhdfs)), "")

    def active_namenode(self) -> str | None:
        """The web address of the active one. Raises HttpError when none answers."""
        return self._first(
            self.state.webhdfs, lambda base: self._namenode_bean(base, "NameNodeStatus").get("State") == "active"
        )

    def _namenode_bean(self, base: str, name: str) -> dict[str, Any]:
        """Empty while it is starting."""
        beans = self.hdfs_admin.get_json(f"{base}/jmx", qry=f"Hadoop:service=NameNode,name={name}")["beans"]
        return dict(beans[0]) if beans else {}

    def yarn_lacks(self) -> str:
        """What YARN waits for, in words; empty when it runs applications."""
        try:
            if not self.active_resourcemanager():
                return "no ResourceManager is active"
            nodes = self.nodes()
        except HttpError as error:
            return f"the ResourceManager does not answer ({error})"
        running = sum(node["state"] == "RUNNING" for node in nodes)
        wanted = len(self.state.addresses.nodemanagers)
        return "" if running >= wanted else f"{running} of {wanted} NodeManagers are running"

    def resourcemanager_lacks(self, base: str) -> str:
        """What one ResourceManager waits for, in words; a standby need only answer."""
        try:
            active = self._is_active(base)
        except HttpError as error:
            return f"the ResourceManager does not answer ({error})"
        pair = len(self.state.addresses.resourcemanagers) > 1
        return "" if pair and not active else self.yarn_lacks()

    def no_resourcemanager_answers(self) -> str:
        """Why not, in words; empty once one answers, active or not."""
        try:
            self.active_resourcemanager()
        except HttpError as error:
            return f"no ResourceManager answers ({error})"
        return ""

    def active_resourcemanager(self) -> str | None:
        """The web address of the active one. Raises HttpError when none answers."""
        return self._first(self.state.rm_webapp, self._is_active)

    @staticmethod
    def _first(bases: list[str], is_active: Callable[[str], bool]) -> str | None:
        failed: list[HttpError] = []
        for base in bases:
            try:
                if is_active(base):
                    return base
            except HttpError as error:
                failed.append(error)
        if len(failed) == len(bases):
            raise failed[-1]
        return None

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes in the ResourceManager's list."""
        base = self.active_resourcemanager()
        if base is None:
            return []
        found = self.yarn_admin.get_json(f"{base}/ws/v1/cluster/nodes")["nodes"]
        return list(found["node"]) if found else []

    def make_folders(self, base: str | None = None) -> None:
        """/tmp for all, and a private home for each ordinary user; `base`: of another NameNode than the active one."""
        self._folder("/tmp", "1777", base)
        self._folder("/user", "755", base)
        for user in ORDINARY_USERS:
            self.make_home(f"/user/{user}", user, base)

    def make_home(self, path: str, owner: str, base: str | None = None) -> None:
        """A private directory of somebody's."""
        self._folder(path, "700", base)
        self._hdfs(path, base, op="SETOWNER", owner=owner, group="users")

    def define_label(self) -> None:
        """The node label, on no node yet: `label_node` puts it on one."""
        label = {"name": NODE_LABEL, "exclusivity": "true", "exclusive": "true"}
        self._yarn("add-node-labels", {"nodeLabelInfo": [label]})

    def label_node(self, node_id: str, label: str) -> None:
        """Put a label on a node such as 127.0.1.1:24512, or take it off with an empty one."""
        change = {"nodeId": node_id, "labels": [label] if label else []}
        self._yarn("replace-node-to-labels", {"nodeToLabels": [change]})

    def set_quota(self, uri: str, **quota: int) -> None:
        """Of a directory: ``storagespacequota`` in bytes, ``namespacequota`` in names; -1: none."""
        self._hdfs(urlsplit(uri).path, op="SETQUOTA", **{name: str(value) for name, value in quota.items()})

    def _is_active(self, base: str) -> bool:
        info = self.yarn_admin.get_json(f"{base}/ws/v1/cluster/info")["clusterInfo"]
        return bool(info["state"] == "STARTED" and info["haState"] == "ACTIVE")

    def _folder(self, path: str, permission: str, base: str | None = None) -> None:
        self._hdfs(path, base, op="MKDIRS", permission=permission)
        # MKDIRS leaves a folder that exists as it is, and drops the sticky bit on some versions.
        self._hdfs(path, base, op="SETPERMISSION", permission=permission)

    def _hdfs(self, path: str, base: str | None = None, **query: str) -> None:
        self.hdfs_admin.request("PUT", f"{base or self.active_namenode()}/webhdfs/v1{path}", query=query)

    def _yarn(self, act: str, content: dict[str, Any]) -> None:
        url = f"{self.active_resourcemanager()}/ws/v1/cluster/{act}"
        self.yarn_admin.request("POST", url, json.dumps(content).encode(), "application/json")
