"""Built environments that no job has used for long: what of them may go."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tony_provider.cluster.application_ref import ApplicationFinder, tag_of
from tony_provider.cluster.base import ApplicationFilter, Cluster
from tony_provider.cluster.environments.built_environments import BuiltEnvironments
from tony_provider.cluster.history.read_history import read_specification
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus
from tony_provider.runtime.storage.errors import StorageError, StorageNotFound
from tony_provider.runtime.storage.helpers import walk


@attrs.frozen
class OldEnvironment:
    """A built environment, kept or removed as a whole."""

    uri: str  # of its directory
    size: int  # bytes
    used_ms: int  # epoch, when a job last used it, or it was built
    spared: str = ""  # why it stays though nobody has used it for long; empty: it may go


@attrs.frozen
class OldEnvironments:
    """Finds and removes those of a staging directory. All raise ClusterError, StorageError."""

    cluster: Cluster
    built: BuiltEnvironments

    def look(self, before_ms: int) -> list[OldEnvironment]:
        """Every environment that was last used before then (epoch). Changes nothing."""
        old = [each for each in self._all() if each.used_ms < before_ms]
        if not old:
            return []
        in_use, unknown = self._in_use()
        return [attrs.evolve(each, spared=in_use.get(uris.parse(each.uri).path, unknown)) for each in old]

    def remove(self, item: OldEnvironment, before_ms: int) -> str:
        """Why it is still there; empty: it is gone. It is looked at again right before."""
        now = next((each for each in self.look(before_ms) if each.uri == item.uri), None)
        if now is None or now.used_ms != item.used_ms:
            return "a job has used it meanwhile"
        if now.spared:
            return now.spared
        try:
            self.built.storage.remove(item.uri, recursive=True)
        except StorageError as error:
            return str(error)
        return ""

    def _all(self) -> Iterator[OldEnvironment]:
        for directory in self._directories():
            try:
                files = list(walk(self.built.storage, directory.path, links=False))
            except StorageNotFound:
                continue  # removed meanwhile
            newest = max([directory.modified_ms, *(each.modified_ms for each in files)])
            yield OldEnvironment(directory.path, sum(each.size for each in files), newest)

    def _directories(self) -> list[FileStatus]:
        """Return the directories without symbolic links, which may lead out of the staging directory."""
        try:
            listed = self.built.storage.list(self.built.layout.environments_dir)
        except StorageNotFound:
            return []
        return [each for each in listed if each.is_directory and not each.is_link]

    def _in_use(self) -> tuple[dict[str, str], str]:
        """Why each environment that a live application names must stay, by its path; why all others must, if so."""
        found, unknown = {}, ""
        finder = ApplicationFinder(self.cluster, self.built.storage, self.built.layout)
        by_tag = {identity.tag: identity for identity in finder.identities()}
        for application in self.cluster.applications(ApplicationFilter(live=True)):
            identity = by_tag.get(tag_of(application) or "")
            if identity is None or not finder.is_of(identity, application):
                continue  # of another staging directory
            directory = self.built.layout.application_dir(identity, application.id)
            specification = read_specification(self.built.storage, directory, [])
            if specification is None:
                unknown = f"what {application.id} uses, which lives, cannot be told"
                continue
            for each in specification.environments.values():
                if each.built:
                    found[uris.parse(uris.parent(each.python_env)).path] = f"{application.id} uses it, which lives"
        return found, unknown
