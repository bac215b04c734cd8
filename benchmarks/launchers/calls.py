"""What a cluster was asked for, counted by its daemons."""

from __future__ import annotations

import re
import time
from collections import Counter

from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import USER

_AUDITED = re.compile(rf"FSNamesystem\.audit: .*ugi={USER} .*\bcmd=(\w+)")
_BEANS = "Hadoop:service=ResourceManager,name=RpcDetailedActivityForPort"
_NUMBER = "NumOps"
_OLD = 11.0  # seconds: Hadoop makes its figures anew every ten


class CallCounter:
    """Counts the calls since the last look at the same daemon, by kind.

    Of the NameNode what its audit log says of the jobs' user, WebHDFS and RPC alike; of the ResourceManager the RPC of
    clients and masters, which is all but NodeManagers' heartbeats. REST is counted by who asks.
    """

    def __init__(self, cluster: HadoopCluster) -> None:
        self._cluster = cluster
        manager = cluster.state.addresses.resourcemanagers[0]
        self._ports = [address.rpartition(":")[2] for address in (manager.client, manager.scheduler)]
        self._log = cluster.log("namenode").open()
        self._before: Counter[str] = Counter()
        self.namenode()
        self.resourcemanager()

    def namenode(self) -> Counter[str]:
        return Counter(f"NameNode {name}" for name in _AUDITED.findall(self._log.read()))

    def resourcemanager(self) -> Counter[str]:
        """Its figures are as old as that: so the wait comes first."""
        time.sleep(_OLD)
        now = Counter({name: count for port in self._ports for name, count in self._rpc(port)})
        asked, self._before = now - self._before, now
        return asked

    def close(self) -> None:
        self._log.close()

    def _rpc(self, port: str) -> list[tuple[str, int]]:
        client, url = self._cluster.client(USER), f"{self._cluster.rm_webapp[0]}/jmx"
        found = client.get_json(url, qry=f"{_BEANS}{port}")["beans"]
        return [
            (f"ResourceManager {name.removesuffix(_NUMBER)}", count)
            for bean in found
            for name, count in bean.items()
            if name.endswith(_NUMBER) and not name.startswith("Overall")
        ]
