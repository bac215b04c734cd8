"""What strangers could do with the ports of a job's processes: told at its submission, until somebody has looked."""

from __future__ import annotations

import logging

from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.ranks import in_cluster
from tony_provider.runtime.spec.model import JobSpec

log = logging.getLogger(__name__)

_REMEDY = (
    "close them to others (docs/security.md has recipes for Docker networks and firewalls) and say `network: isolated` "
    "in the job or the connection; or say `trusted`, if everybody who reaches the nodes may do that"
)


def tell_open_ports(job: JobSpec) -> None:
    """Warn, in one line, where a job's framework serves anybody, and neither job nor connection says who can reach it.

    ``job``: with the connection's defaults. Of a job with a single process nothing is said: it has nobody to serve.
    """
    exposed = get_framework(job.framework).exposed
    if job.network is not None or not exposed or _members(job) < 2:
        return
    ports = f"ports {job.port_range.first} to {job.port_range.last} of the job's nodes, and what the framework adds"
    log.warning("%s (%s). To end this warning, %s", exposed, ports, _REMEDY)


def _members(job: JobSpec) -> int:
    """How many processes of the framework the job has."""
    return sum(
        task.most_instances * task.process_count for name, task in job.tasks.items() if in_cluster(job.role(name))
    )
