"""The layout of a staging directory: where files of jobs and trainings lie."""

from __future__ import annotations

import re

import attrs

from tony_provider.cluster.identity import Identity
from tony_provider.runtime import contract
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.errors import StorageInvalidPath

APPLICATIONS = "applications"  # in a training's directory: those of its applications
_JSON = ".json"
_CACHED = re.compile(r"(?:environments/)?[0-9a-f]{64}/[^/]+")
_CHAIN = re.compile(r"chain-(\d{4,})")


@attrs.frozen
class Layout:
    """The paths below one staging directory.

    They are ``cache/<sha256>/<name>`` for what jobs share, ``jobs/<identity>/`` for what is one training's: an
    ``applications/<id>`` for each application, a chain (``chain-0001``) for each fresh start, ``notes`` of its
    tries; ``advice/<task>.json`` for what all runs of a task of a DAG have used.
    """

    root: str  # URI of the staging directory

    @property
    def cache_dir(self) -> str:
        return uris.join(self.root, "cache")

    def cached(self, sha256: str, name: str) -> str:
        """Return the URI of a file with this content. The name is for people; no shell interprets its characters."""
        return uris.join(self.cache_dir, sha256, re.sub(r"[^A-Za-z0-9._-]", "_", name)[-100:])

    def is_cached(self, uri: str) -> bool:
        """Return whether a URI names a file that submissions store by its content: ``cache/<sha256>/<name>``.

        An environment of `airflow tony env build` is at ``cache/environments/<key>/<name>``.
        """
        try:
            found, cache = uris.parse(uri), uris.parse(self.cache_dir)
        except StorageInvalidPath:
            return False
        is_here = (found.scheme, found.authority) == (cache.scheme, cache.authority)
        return is_here and _CACHED.fullmatch(found.path.removeprefix(f"{cache.path}/")) is not None

    @property
    def environments_dir(self) -> str:
        """The directory that holds the Python environments that were built, a directory for each."""
        return uris.join(self.cache_dir, "environments")

    @property
    def jobs_dir(self) -> str:
        """The directory that holds all trainings' directories."""
        return uris.join(self.root, "jobs")

    def job_dir(self, identity: Identity) -> str:
        return uris.join(self.jobs_dir, identity.name)

    def applications_dir(self, identity: Identity) -> str:
        return uris.join(self.job_dir(identity), APPLICATIONS)

    def application_dir(self, identity: Identity, application_id: str) -> str:
        return uris.join(self.applications_dir(identity), application_id)

    def launch_dir(self, identity: Identity, application_id: str) -> str:
        """The directory for what the application needs only while it lives."""
        return uris.join(self.application_dir(identity, application_id), contract.LAUNCH_DIR)

    def notes_dir(self, identity: Identity) -> str:
        """The directory of what the training's tries tell each other."""
        return uris.join(self.job_dir(identity), "notes")

    @property
    def advice_dir(self) -> str:
        """The directory that holds what is known of former runs, a file for each task of a DAG."""
        return uris.join(self.root, "advice")

    def former_runs(self, task: Identity) -> str:
        """The URI of the file with the last applications of a task of a DAG, whatever their runs."""
        return uris.join(self.advice_dir, f"{task.name}{_JSON}")

    def task_of(self, file: str) -> Identity | None:
        """The task whose former runs are in the file of this name; None when it is none of ours."""
        return Identity.parse(file.removesuffix(_JSON)) if file.endswith(_JSON) else None

    def chain_dir(self, identity: Identity, number: int) -> str:
        """The directory of a checkpoint chain; numbers count from 1."""
        return uris.join(self.job_dir(identity), f"chain-{number:04}")


def chain_number(name: str) -> int | None:
    """The number of the chain whose directory in ``job_dir`` has this name; None for other names."""
    match = _CHAIN.fullmatch(name)
    return int(match[1]) if match else None
