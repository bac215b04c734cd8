"""The clocks of a job's nodes, as far as they differ from the clock that the application master follows."""

from __future__ import annotations

from tony_provider.runtime import clock
from tony_provider.runtime.clock import difference, epoch_ms
from tony_provider.runtime.protocol.timing import CLOCKS_DIFFER

_MOST_NAMED = 3  # nodes in one line


class NodeClocks:
    """Collects what executors report of their nodes' clocks when they register."""

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}  # seconds, by node

    def registered(self, node: str, clock_ms: int) -> None:
        """Compare the clock of a node at this moment. ``clock_ms`` is 0 if its executor does not report it."""
        host, ahead = node.partition(":")[0], (clock_ms - epoch_ms()) / 1000
        if clock_ms and abs(ahead) > CLOCKS_DIFFER:
            self._ahead[host] = ahead
        else:
            self._ahead.pop(host, None)

    @property
    def troubles(self) -> list[str]:
        """A line for the application master's node and a line for the others, if their clocks are wrong."""
        lines = []
        if (ahead := -clock.correction()) != 0:
            lines.append(
                f"the clock of the application master's node is {difference(ahead)} the clock of the store. The times "
                "of this job follow the store"
            )
        if self._ahead:
            worst = sorted(self._ahead.items(), key=lambda item: -abs(item[1]))
            named = ", ".join(f"the clock of {node} is {difference(ahead)} it" for node, ahead in worst[:_MOST_NAMED])
            more = f" and {len(worst) - _MOST_NAMED} more" if len(worst) > _MOST_NAMED else ""
            lines.append(f"clocks of nodes differ from the clock that this job follows: {named}{more}")
        return lines
