"""An application and its training, looked up by an id or a tag that people name.

The cluster and the staging directory are asked, and have to agree. Anybody may give an application of their own any
tag, but makes no directory for it among a training's; and a job may do that, but gives no other application its tag.
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
        if application is not None:
            return ApplicationRef(application_id, application, self._by_tags(application))
        identity = self._by_directory(application_id)
        return ApplicationRef(application_id, None, identity) if identity is not None else None

    def of_tag(self, tag: str) -> ApplicationRef | None:
        """The newest application with this tag, a training's own or one that jobs name; None when there is none.

        Those of the staging directory come before others of the hook's user; strangers' do not count.
        """
        known = list(self.identities())
        others = []
        for application in self.cluster.applications(ApplicationFilter(tag=tag)):
            identity = next((each for each in known if each.tag in application.tags), None)
            if identity is not None and application.id in self.ids_of(identity):
                return ApplicationRef(application.id, application, identity)
            if application.user == self.cluster.user:
                others.append(ApplicationRef(application.id, application, None))
        identity = next((each for each in known if each.tag == tag), None)
        if identity is not None and (kept := self.ids_of(identity)):
            return ApplicationRef(kept[-1], None, identity)
        return others[0] if others else None

    def live_of(self, identity: Identity) -> list[Application]:
        """The applications of this training that have not ended, newest first."""
        found = self.cluster.applications(ApplicationFilter(live=True, tag=identity.tag))
        known = self.ids_of(identity) if found else []
        return [application for application in found if application.id in known]

    def is_of(self, identity: Identity, application: Application) -> bool:
        """Whether the application is one of this training's."""
        return identity.tag in application.tags and application.id in self.ids_of(identity)

    def identities(self) -> Iterator[Identity]:
        """The identities of all trainings that have a directory."""
        try:
            directories = self.storage.list(self.layout.jobs_dir)
        except StorageNotFound:
            return
        for directory in directories:
            if directory.is_directory and (identity := Identity.parse(directory.name)) is not None:
                yield identity

    def _by_tags(self, application: Application) -> Identity | None:
        """Seldom more than one directory is looked into, where ``_by_directory`` does it with all."""
        tagged = (identity for identity in self.identities() if identity.tag in application.tags)
        return next((identity for identity in tagged if application.id in self.ids_of(identity)), None)

    def _by_directory(self, application_id: str) -> Identity | None:
        for identity in self.identities():
            if application_id in self.ids_of(identity):
                return identity
        return None

    def ids_of(self, identity: Identity) -> list[str]:
        """Return the ids of the training's applications that have a directory, the newest last."""
        try:
            found = self.storage.list(self.layout.applications_dir(identity))
        except StorageNotFound:
            return []
        return [file.name for file in sorted(found, key=lambda file: file.modified_ms) if file.is_directory]


def tag_of(application: Application) -> str | None:
    """The tag that names the application's training; None for an application of something else."""
    return next((tag for tag in application.tags if tag.startswith(contract.TAG_PREFIX)), None)
