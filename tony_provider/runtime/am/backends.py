"""Which cluster an application runs on. The only place that asks."""

from __future__ import annotations

from tony_provider.runtime.am.resource_manager import ResourceManager, ResourceManagerError
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.local.archives import shared_cache


def open_resource_manager(description: ApplicationDescription, credentials: Credentials) -> ResourceManager:
    """Within a running event loop; close it. Raises ResourceManagerError, CredentialsError.

    Each backend is imported when it is the one: the application master's memory counts.
    """
    if description.yarn:
        from tony_provider.runtime.am.yarn.resource_manager import YarnResourceManager

        return YarnResourceManager(description, description.yarn, credentials)
    if description.local is None:
        raise ResourceManagerError("the application's description names neither a YARN nor a local cluster")
    if description.job.docker:
        raise ResourceManagerError("docker: the local cluster runs no Docker containers; leave it out, or use YARN")
    from tony_provider.runtime.am.local.resource_manager import LocalResourceManager

    return LocalResourceManager(description, description.local, shared_cache(description.local))
