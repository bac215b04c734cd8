"""What can become of a tunnel."""

# ruff: noqa: N818 - named for what is wrong

from __future__ import annotations

from tony_provider.cluster.errors import ClusterError


class TunnelEnded(ClusterError):
    """A tunnel is over, for good; the message says why."""


class TunnelLost(ClusterError):
    """The master knows nothing of a tunnel any more; another one can be opened."""
