"""An application and its training, looked up by an id or a tag that people name.

The cluster and the staging directory are asked.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tony_provider.cluster.base import Application, ApplicationFilter, Cluster
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.runtime import contract
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound


@attrs.frozen
class ApplicationRef:
    """An application, and the training that it is of as far as that is known."""

    application_id: str
    application: Application | None  # None: the cluster does not know it (any more)
    identity: Identity | None  # None: nothing of it is in the staging directory


@attrs.frozen
class ApplicationFinder:
    """Finds applications by id or tag, and the trainings that they are of.

    All methods raise ClusterError and StorageError.
    """

    cluster: Cluster
    storage: Storage
    layout: Layout

    def of_application(self, application_id: str) -> ApplicationRef | None:
        """The application with this id; None when neither the cluster nor the staging directory knows it."""
        application = self.cluster.application(application_id)
        identity = self._by_tags(application.tags) if application is not None else None
        if identity is None:
            identity = self._by_directory(application_id)
        if application is None and identity is None:
            return None
        return ApplicationRef(application_id, application, identity)

    def of_tag(self, tag: str) -> ApplicationRef | None:
        """The newest application of the training with this tag; None when there is none."""
        identity = self._by_tags([tag])
        if found := self.cluster.applications(ApplicationFilter(tag=tag)):
            return ApplicationRef(found[0].id, found[0], identity)
        kept = self._applications(identity) if identity is not None else []
        return ApplicationRef(kept[-1], None, identity) if kept else None

    def identities(self) -> Iterator[Identity]:
        """The identities of all trainings that have a directory."""
        try:
            directories = self.storage.list(self.layout.jobs_dir)
        except StorageNotFound:
            return
        for directory in directories:
            if directory.is_directory and (identity := Identity.parse(directory.name)) is not None:
                yield identity

    def _by_tags(self, tags: list[str]) -> Identity | None:
        return next((identity for identity in self.identities() if identity.tag in tags), None)

    def _by_directory(self, application_id: str) -> Identity | None:
        for identity in self.identities():
            if application_id in self._applications(identity):
                return identity
        return None

    def _applications(self, identity: Identity) -> list[str]:
        """The ids of those with a directory, the newest last."""
        try:
            found = self.storage.list(self.layout.applications_dir(identity))
        except StorageNotFound:
            return []
        return [file.name for file in sorted(found, key=lambda file: file.modified_ms) if file.is_directory]


def tag_of(application: Application) -> str | None:
    """The tag that names the application's training; None for an application of something else."""
    return next((tag for tag in application.tags if tag.startswith(contract.TAG_PREFIX)), None)
