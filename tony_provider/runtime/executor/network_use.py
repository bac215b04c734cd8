"""How much the container has received and sent, where it has a network of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import attrs

_RECEIVED, _SENT = 0, 8  # columns of /proc/net/dev, see proc_pid_net(5)
_LOOPBACK = "lo"


@attrs.frozen
class NetworkUse:
    """Bytes since the container's network was made, its loopback left out."""

    received: int
    sent: int


@attrs.frozen
class NetworkMeter:
    """Reads the counters of the interfaces that this process sees.

    They are the container's own only in a Docker container that does not share the node's network.
    """

    docker: bool  # whether this is a Docker container
    counters: Path = Path("/proc/self/net/dev")
    interfaces: Path = Path("/sys/class/net")

    def measure(self) -> Optional[NetworkUse]:
        """None where it cannot be told from what others of the node receive and send. Blocks shortly."""
        if not self.docker:
            return None
        try:
            lines = self.counters.read_text().splitlines()[2:]
        except (FileNotFoundError, PermissionError):
            return None
        received = sent = 0
        for line in lines:
            name, _, numbers = line.partition(":")
            name = name.strip()
            if name == _LOOPBACK:
                continue
            if self._is_of_a_node(name):
                return None
            columns = numbers.split()
            received, sent = received + int(columns[_RECEIVED]), sent + int(columns[_SENT])
        return NetworkUse(received, sent)

    def _is_of_a_node(self, name: str) -> bool:
        """A device, or a bridge that containers are connected to: no container with its own network has these."""
        interface = self.interfaces / name
        return (interface / "device").exists() or (interface / "bridge").exists()
