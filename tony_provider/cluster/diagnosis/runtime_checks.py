"""Check of the runtime that nodes are sent: for which Pythons it is."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tony_provider.cluster.diagnosis.finding import Finding, ok, problem
from tony_provider.cluster.environments.node_pythons import of_runtime
from tony_provider.cluster.settings import Settings
from tony_provider.cluster.sources import in_store
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.wheel_name import version_text

WHAT = "Runtime"
_BUILD = "make one: airflow tony runtime build --python <versions of the nodes>"


def check_runtime(settings: Settings) -> Iterator[Finding]:
    """Check the runtime as far as this host can tell; nodes are not looked at."""
    archive = settings.runtime_archive
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if archive is None:
        yield ok(WHAT, f"this host's own packages are sent, for Python {version}; no node was looked at")
    elif "://" not in archive or archive.startswith("file://"):
        yield _archive(Path(archive.removeprefix("file://")))
    if settings.local is not None:
        yield from _interpreters(settings.python)


def check_stored_runtime(storage: Storage, staging_dir: str, archive: str) -> Iterator[Finding]:
    """Check that the runtime archive which the connection names on the store is there."""
    what = f"{WHAT} {archive}"
    if not in_store(archive, staging_dir):
        advice = "copy it there, or name a file on the worker"
        yield problem(what, f"it is in another store than the staging directory ({uris.scheme(staging_dir)})", advice)
    elif not storage.exists(archive):
        yield problem(what, "it is not there", _BUILD)
    else:
        yield ok(what, "it is there; its contents were not looked at")


def is_stored(archive: str | None) -> bool:
    """Whether the connection's runtime archive is a URI of the store, and not a file of the worker."""
    return archive is not None and "://" in archive and not archive.startswith("file://")


def _archive(path: Path) -> Finding:
    what = f"{WHAT} {path}"
    try:
        with path.open("rb") as file:
            versions = of_runtime(file).versions
    except FileNotFoundError:
        return problem(what, "it is not on this host", _BUILD)
    except (OSError, zipfile.BadZipFile) as error:
        return problem(what, f"it cannot be read ({error})", _BUILD)
    if not versions:
        return problem(what, "it is no runtime archive", _BUILD)
    return ok(what, f"for Python {', '.join(map(version_text, sorted(versions)))}; no node was looked at")


def _interpreters(pythons: list[str]) -> Iterator[Finding]:
    for python in pythons:
        what = f"Python {python}"
        if os.access(python, os.X_OK):
            yield ok(what, "it is there")
        else:
            yield problem(what, "it is not there, or cannot be run", "mend `python` in the connection")
