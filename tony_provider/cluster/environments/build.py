"""Building an environment for jobs: once for each content, beforehand, and never while a job is submitted."""

from __future__ import annotations

import gzip
import logging
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from io import BytesIO
from pathlib import Path

import attrs

from tony_provider.cluster.environments.built_environments import NAME, BuiltEnvironments, digits
from tony_provider.cluster.environments.installing import (
    BuildFailed,
    BuildTarget,
    find_installer,
    indexes_of,
    install,
    version_of,
)
from tony_provider.cluster.environments.requirements import Requirements
from tony_provider.cluster.sources import local_source
from tony_provider.runtime import contract
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.environment_record import EnvironmentRecord
from tony_provider.runtime.storage import uris
from tony_provider.runtime.wheel_name import version_text

log = logging.getLogger(__name__)

_LEFT_OUT = frozenset({"__pycache__", ".lock"})  # what installers leave behind
_COMPRESSION = 6


@attrs.frozen
class BuiltEnvironment:
    """An environment that jobs can name."""

    uri: str  # for the job's key ``python_env``
    was_there: bool  # nothing was built


def build_environment(
    kept: BuiltEnvironments,
    requirements: Requirements,
    target: BuildTarget,
    installer: str | None = None,
    others: Sequence[BuiltEnvironments] = (),
) -> BuiltEnvironment:
    """Build an environment, unless the store has an environment with this content.

    Raises BuildFailed, IndexProblem, OSError, StorageError.

    :param others: where one may be, too.
    :param installer: ``uv`` or ``pip``; default: uv where it is there.
    """
    python = version_text(target.version)
    installer = find_installer(installer, requirements)
    indexes = indexes_of(installer)
    key = requirements.key(python, target.platform, indexes.chosen_by)
    for each in (kept, *others):
        if (found := each.find(key)) is not None:
            each.note_use(found)  # or it might be pruned before the job that it is for
            return BuiltEnvironment(found, was_there=True)
    with tempfile.TemporaryDirectory(prefix="tony-env-") as folder:
        packages = Path(folder) / "packages"
        install(installer, indexes, requirements, target, packages)
        record = EnvironmentRecord(
            python=python,
            machine=target.machine,
            packages=_installed(packages),
            built_by=version_of(installer),
            built_ms=epoch_ms(),
        )
        abi = f"cp{python.replace('.', '')}"
        archive = Path(folder) / "packed.tar.gz"
        _pack(packages, record, archive)
        packed = local_source(archive, archive.name)
        name = f"{NAME}{abi}-{target.machine}-{digits(packed.sha256)}.tar.gz"
        archive = archive.rename(archive.with_name(name))
        record = attrs.evolve(record, archive=name, sha256=packed.sha256, size=packed.size)
        uri = kept.keep(key, archive, record)
        log.info("Built %s (%d bytes) of %s", uris.name(uri), packed.size, requirements.file)
        return BuiltEnvironment(uri, was_there=False)


def _installed(packages: Path) -> dict[str, str]:
    found = {each.name: each.version for each in metadata.distributions(path=[str(packages)])}
    if not found:
        raise BuildFailed("nothing was installed")
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _pack(packages: Path, record: EnvironmentRecord, archive: Path) -> None:
    """By names, without times and owners: the same packages give the same bytes, but for the record."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_COMPRESSION, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        data = dump_json(record)
        info = tarfile.TarInfo(contract.ENVIRONMENT_FILE)
        info.size = len(data)
        tar.addfile(info, BytesIO(data))
        for path in _files(packages):
            tar.add(path, path.relative_to(packages).as_posix(), recursive=False, filter=_plain)


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name in _LEFT_OUT:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nobody's, of no time: neither is content."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    return info
