"""The choice between YARN and the local cluster: the only place that asks which one an application runs on."""

from __future__ import annotations

from pathlib import Path

from tony_provider.runtime.am.resource_manager import ResourceManager, ResourceManagerError
from tony_provider.runtime.am.web.authenticator import Authenticator
from tony_provider.runtime.application import ApplicationDescription, YarnAccess
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.private_memory import keep_memory_private
from tony_provider.runtime.protocol import tracking
from tony_provider.runtime.spec.images import images


def open_resource_manager(description: ApplicationDescription, credentials: Credentials) -> ResourceManager:
    """The ResourceManager of the cluster that the application runs on; close it.

    Call it within a running event loop. Raises ResourceManagerError, CredentialsError, OSError. Each backend is
    imported when it is the one: the application master's memory counts.
    """
    if description.yarn:
        from tony_provider.runtime.am.yarn.resource_manager import YarnResourceManager

        # Containers of other jobs of this user may be on the node. (The local cluster finds its masters in /proc.)
        keep_memory_private()
        return YarnResourceManager(description, description.yarn, credentials)
    if description.local is None:
        raise ResourceManagerError("the application's description names neither a YARN nor a local cluster")
    if named := [path for path, image in images(description.job).items() if image is not None]:
        raise ResourceManagerError(f"{named[0]}: the local cluster starts no images; leave it out, or use YARN")
    from tony_provider.runtime.am.local.resource_manager import LocalResourceManager

    return LocalResourceManager(description, description.local)


def open_gate(description: ApplicationDescription, user: str) -> Authenticator:
    """The Authenticator for the cluster that the application runs on. Raises OSError.

    ``user``: whom the cluster runs it as, which may be spelt otherwise than on the Airflow side.
    """
    if description.local:
        from tony_provider.runtime.am.web.local_authenticator import LocalAuthenticator

        return LocalAuthenticator(tracking.make_secret(Path(description.local.root)), description.user)
    from tony_provider.runtime.am.web.yarn_authenticator import YarnAuthenticator

    return YarnAuthenticator(description.yarn or YarnAccess([]), {description.user, user} - {""})
