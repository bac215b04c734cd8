"""The runtime archive: a zip with the runtime, its dependencies and frameworks, which every container receives.

The Airflow worker packs the archive from its own installation. Alternatively, `airflow tony runtime build` builds it
from wheels for other Pythons. The archive also has an index of its files, and the entry points of frameworks from other
packages. It has the bytecode of all modules, and of the code that attrs and cattrs generate.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import logging
import marshal
import operator
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path, PurePosixPath

import attrs

import tony_provider
from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.sources import user_cache
from tony_provider.runtime.common.files import keep_newest, write_private_file
from tony_provider.runtime.common.helper_processes import absolute_entries
from tony_provider.runtime.frameworks import base
from tony_provider.runtime.launch import launch_context
from tony_provider.runtime.storage.object_store import PACKAGE

log = logging.getLogger(__name__)

_INFO = "tony_frameworks-1.dist-info"  # name of the distribution that declares the frameworks' entry points on nodes
_METADATA = b"Metadata-Version: 2.1\nName: tony-frameworks\nVersion: 1\n"


@attrs.frozen
class ArchiveEntry:
    """A file of the archive: its content, or the path to read it from."""

    content: bytes | Path

    def read(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


def framework_entries() -> Iterator[tuple[str, ArchiveEntry]]:
    """Yield the files of the packages that define frameworks, by their names in the archive.

    To keep the archive small, include only the package with the framework's module, not its dependencies. If a
    framework has no files, log a warning and skip it, so that jobs of other frameworks can run.
    """
    points = []
    for point in base.entry_points():
        try:
            files = dict(_files(point.value.partition(":")[0]))
        except (ImportError, OSError, ValueError) as error:
            log.warning("The framework %s (%s) is left out of the archive: %s", point.name, point.value, error)
            continue
        points.append(point)
        for name, path in files.items():
            yield name, ArchiveEntry(path)
    if points:
        listed = "".join(f"{point.name} = {point.value}\n" for point in points)
        yield f"{_INFO}/METADATA", ArchiveEntry(_METADATA)
        yield f"{_INFO}/entry_points.txt", ArchiveEntry(f"[{base.GROUP}]\n{listed}".encode())


def _files(module: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a module's package, by their names in the archive.

    Raises ImportError if the module is not installed or has no file.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"{module} has no file")
    package = module if spec.submodule_search_locations else module.rpartition(".")[0]
    if not package:
        yield Path(spec.origin).name, Path(spec.origin)
        return
    directory = Path(spec.origin).parent
    for path in sorted(directory.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{package.replace('.', '/')}/{path.relative_to(directory).as_posix()}", path
    *above, _ = package.split(".")
    for depth in range(len(above), 0, -1):
        directory = directory.parent
        if (directory / "__init__.py").is_file():
            yield f"{'/'.join(above[:depth])}/__init__.py", directory / "__init__.py"


_SECONDS = 300.0  # time limit of the compilation; usually two seconds for about 700 modules
_PLAIN = 2  # version of marshal's format that every Python reads
_WITHOUT_DOCSTRINGS = ("tony_provider/runtime/", "attr/", "cattrs/", "google/", "grpc/", "h11/", "yaml/")
_SDK = "tony_provider/runtime/sdk/"
_UNCHECKED = b"\1\0\0\0"  # flags of a .pyc that Python does not compare with its source (PEP 552)

# Runs in a separate process with PYTHONHASHSEED=0. Otherwise the order of constants, and so the archive's bytes, would
# vary. Skips a module that this Python cannot compile, because the module may be for another Python.
_COMPILER = f"""
import importlib.util, marshal, sys
made = []
for name, source, level in marshal.load(sys.stdin.buffer):
    try:
        code = compile(source, name, "exec", dont_inherit=True, optimize=level)
    except SyntaxError:
        continue
    head = importlib.util.MAGIC_NUMBER + {_UNCHECKED!r} + importlib.util.source_hash(source)
    made.append((name + "c", head + marshal.dumps(code)))
sys.stdout.buffer.write(marshal.dumps(made, {_PLAIN}))
"""


# Runs in a directory with the archive's files for one Python. Imports the runtime, and records the code that attrs and
# cattrs generate.
_RECORDER = f"""
import importlib, marshal, sys
sys.path.insert(0, ".")
import start
made = []
class Recorder(start.Runtime):
    def compile_generated(self, script, filename, mode):
        code = compile(script, filename, mode)
        made.append((start.generated_name(script, filename), marshal.dumps(code, {_PLAIN})))
        return code
sys.meta_path.insert(2, Recorder("."))
for name in "am.lifecycle", "am.yarn.yarn_resource_manager", "executor.executor":
    importlib.import_module("tony_provider.runtime." + name)
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.common.codec import converter
from tony_provider.runtime.protocol.status import JobStatus
for forbid in True, False:
    converter(forbid_extra_keys=forbid).get_structure_hook(ApplicationDescription)
    converter(forbid_extra_keys=forbid).get_structure_hook(JobStatus)
converter(forbid_extra_keys=True).get_unstructure_hook(JobStatus)
sys.stdout.buffer.write(marshal.dumps(made, {_PLAIN}))
"""


def _interpreter(python: str) -> str | None:
    """Return the path of an interpreter with this version (such as ``3.9``) on this machine, or None."""
    if python == "{}.{}".format(*sys.version_info[:2]) and sys.executable:
        return sys.executable
    return shutil.which(f"python{python}", path=absolute_entries(os.environ.get("PATH", os.defpath)))


def bytecode(python: str, entries: Mapping[str, ArchiveEntry]) -> dict[str, bytes]:
    """Return the bytecode of the modules in ``entries`` for a Python version, or {} if this machine lacks that version.

    Equal modules give equal bytes.
    """
    modules = {name: entry for name, entry in sorted(entries.items()) if name.endswith(".py")}
    sources = [(name, entry.read(), _optimization(name)) for name, entry in modules.items()]
    return _run_python(python, _COMPILER, "/", marshal.dumps(sources, _PLAIN))  # "/" has no modules


def _optimization(name: str) -> int:
    """Return the level for ``compile``: 2 leaves out docstrings and assertions, 0 keeps them.

    Without docstrings, an executor needs almost 1 MiB less memory. The SDK keeps its docstrings for users, and other
    packages may need their docstrings.
    """
    own = name.startswith(_WITHOUT_DOCSTRINGS) and not name.startswith(_SDK)
    return 2 if own else 0


def generated_code(python: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the compiled code that attrs and cattrs generate for the runtime, by ``generated_name`` of start.py.

    ``files`` are the files in a container's directory ``tony``. Return {} if this machine cannot run them.
    """
    with tempfile.TemporaryDirectory(prefix="tony-runtime-") as directory:
        for name, content in files.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return _run_python(python, _RECORDER, directory)


def _run_python(python: str, program: str, directory: str, given: bytes = b"") -> dict[str, bytes]:
    """Run a program with this version of Python. Return the files that it prints, or {} if that is not possible."""
    interpreter = _interpreter(python)
    if interpreter is None:
        log.info("Cannot find Python %s, so the archive has no bytecode for it, and nodes compile modules", python)
        return {}
    try:
        done = subprocess.run(
            [interpreter, "-S", "-s", "-W", "ignore", "-c", program],
            input=given,
            cwd=directory,
            env={"PYTHONHASHSEED": "0"},
            capture_output=True,
            check=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("The archive lacks compiled code for Python %s, so nodes compile it: %s", python, error)
        return {}
    return dict(marshal.loads(done.stdout))  # noqa: S302 - made above


PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_FORMAT = 9  # version of the archive's format, which is part of the archive's key
_ZIP_HEADER = 30  # bytes before the name in a zip entry
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time in the zip format
_DOWNLOADS = 4  # Pythons whose wheels are downloaded concurrently
_DOWNLOAD_SECONDS = 600.0  # time limit for the wheels of one Python, about 20 MB
_KEPT = 4  # number of archives on the worker's disk, usually one for each version of the provider
_REQUIREMENTS = Path(tony_provider.__file__).parent / "runtime" / "requirements.txt"
_HASHES = _REQUIREMENTS.with_name("requirements-hashes.txt")  # versions to download and hashes of their wheels
_PIN = re.compile(r"(?m)^(\S+)==(\S+) (?:; python_full_version (\S+) '3\.(\d+)\S*' )?(\\\n(?: +--hash.*\n)+)")
_OPERATORS = {"<": operator.lt, "==": operator.eq, ">=": operator.ge}
# Files of packages that are left out, because no process on a node loads them.
_DROPPED_DIRECTORIES = {"__pycache__", "tests", "testdata", "cattr", "licenses", "_yaml"}
_DROPPED_ENDINGS = (".pyi", ".pyc", ".pxd", ".pyx", ".h", ".proto", ".pem", ".typed")
_lock = threading.Lock()


def worker_archive(cache: Path | None = None, *, object_stores: bool = False) -> Path:
    """Return the runtime archive for this Python version, packed from the installed packages.

    ``object_stores``: whether to include the large library for object stores, which must be installed.

    It is packed once and kept in the directory ``cache``, by default ``tony-provider`` in the user's cache. Raises
    StagingFailed if a package that the runtime needs is not installed, or if the directory cannot be written.
    """
    runtime = dict(_runtime_entries())
    distributions = [_distribution(name) for name in _installed_requirements(object_stores)]
    key = _key(runtime, distributions)
    try:
        with _lock:
            directory = user_cache(cache)
            archive = directory / f"tony-runtime-{key}.zip"
            if not archive.exists():
                python = "{}.{}".format(*sys.version_info[:2])
                entries = dict(runtime)
                for distribution in distributions:
                    entries.update(_installed_entries(distribution))
                write_private_file(archive, _zipped(_for_python(python, entries)), replace=False)
                log.info("Packed the runtime: %s, %d bytes", archive, archive.stat().st_size)
                keep_newest(directory.glob("tony-runtime-*.zip"), _KEPT)
            return archive
    except OSError as error:
        raise StagingFailed(f"the runtime archive could not be packed: {error}") from error


def build(
    pythons: Sequence[str], output: Path, platforms: Sequence[str] = PLATFORMS, *, object_stores: bool = False
) -> None:
    """Build an archive for nodes with any of ``pythons`` (such as ``3.9``) from wheels that pip downloads.

    This release pins version and hash of each wheel. Raises StagingFailed if pip is not installed, takes too long, or
    finds no suitable wheel or a wheel with another hash. ``object_stores``: see ``worker_archive``.
    """
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="tony-runtime-") as folder, ThreadPoolExecutor(_DOWNLOADS) as pool:
        downloads = [
            pool.submit(_download, python, platforms, Path(folder) / python, object_stores) for python in pythons
        ]
        for python, download in zip(pythons, downloads, strict=True):
            entries = dict(_runtime_entries())
            for wheel in sorted(download.result().glob("*.whl")):
                entries.update(_wheel_entries(wheel))
            files.update(_for_python(python, entries))
        output.parent.mkdir(parents=True, exist_ok=True)
        write_private_file(output, _zipped(files))


def _runtime_entries() -> Iterator[tuple[str, ArchiveEntry]]:
    package = Path(tony_provider.__file__).parent
    yield "tony_provider/__init__.py", ArchiveEntry(package / "__init__.py")
    for path in sorted((package / "runtime").rglob("*")):
        relative = path.relative_to(package).as_posix()
        if path.is_file() and _wanted(relative) and path.suffix in (".py", ".sh", ".html", ".css", ".js"):
            yield f"tony_provider/{relative}", ArchiveEntry(path)
    yield from framework_entries()


def _wanted(name: str) -> bool:
    *directories, file = name.split("/")
    if _DROPPED_DIRECTORIES & set(directories) or file.endswith(_DROPPED_ENDINGS):
        return False
    if any(directory.endswith(".dist-info") for directory in directories):
        return file == "METADATA"
    return not (file.startswith("_yaml.") and file.endswith(".so"))  # a C parser that the runtime does not use


def _requirement_names() -> list[str]:
    lines = (line.split("#")[0].strip() for line in _REQUIREMENTS.read_text().splitlines())
    return [re.split(r"[<>=!~ ]", line)[0] for line in lines if line]


def _installed_requirements(object_stores: bool) -> list[str]:
    # Python 3.11 and newer include exceptiongroup.
    left_out = {*(["exceptiongroup"] * (sys.version_info >= (3, 11))), *([PACKAGE] * (not object_stores))}
    return [name for name in _requirement_names() if name not in left_out]


def _distribution(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise StagingFailed(f"{name} is not installed on this worker, and the runtime needs it on the nodes") from error


def _installed_entries(distribution: metadata.Distribution) -> Iterator[tuple[str, ArchiveEntry]]:
    files = distribution.files
    if files is None:
        raise StagingFailed(
            f"the installation of {distribution.name} does not list its files; name a runtime_archive in the tony "
            "connection (made by `airflow tony runtime build`)"
        )
    for file in files:
        name = file.as_posix()
        if not name.startswith(("..", "/")) and _wanted(name):
            yield name, ArchiveEntry(Path(str(distribution.locate_file(file))))


def _wheel_entries(wheel: Path) -> Iterator[tuple[str, ArchiveEntry]]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/") and _wanted(name):
                yield name, ArchiveEntry(archive.read(name))


def _pinned(python: str, object_stores: bool) -> str:
    """Return the requirements with hashes for a Python version. pip would evaluate markers for its own Python."""
    found = []
    for name, version, compared, other, hashes in _PIN.findall(_HASHES.read_text()):
        suits = not compared or _OPERATORS[compared](int(python.split(".")[1]), int(other))
        if suits and (object_stores or name != PACKAGE):
            found.append(f"{name}=={version} {hashes}")
    return "".join(found)


def _download(python: str, platforms: Sequence[str], target: Path, object_stores: bool) -> Path:
    """Download the wheels for a Python version into the new directory ``target``, and return the directory."""
    from tony_provider.cluster.environments.requirements import pip_command, pip_indexes  # not needed by submissions

    abi = f"cp{python.replace('.', '')}"
    command = [*pip_command(), "download", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    command += [argument for tag in (abi, "abi3", "none") for argument in ("--abi", tag)]
    command += [argument for platform in platforms for argument in ("--platform", platform)]
    command += ["--dest", str(target), "--no-deps", "--require-hashes", "--requirement", "requirements.txt"]
    if importlib.util.find_spec("pip") is None:
        raise StagingFailed(f"pip downloads the packages, but {sys.executable} has no pip: install pip there")
    target.mkdir()
    (target / "requirements.txt").write_text(_pinned(python, object_stores))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DOWNLOAD_SECONDS,
            cwd=target,
            env=pip_indexes(target).variables,
        )
    except subprocess.TimeoutExpired as error:
        raise StagingFailed(f"pip got no packages for Python {python} within {_DOWNLOAD_SECONDS:g} s") from error
    if done.returncode:
        raise StagingFailed(
            f"pip found no packages for Python {python} on {', '.join(platforms)}: {done.stderr.strip()}"
        )
    return target


def _key(runtime: Mapping[str, ArchiveEntry], distributions: Iterable[metadata.Distribution]) -> str:
    """Return a hash of the archive's inputs: the bytes of the runtime, and the versions of installed packages."""
    digest = hashlib.sha256(f"{_FORMAT} {sys.implementation.cache_tag} {sys.platform} {os.uname().machine}".encode())
    for name, entry in sorted(runtime.items()):
        digest.update(f"\n{name} {hashlib.sha256(entry.read()).hexdigest()}".encode())
    for distribution in distributions:
        digest.update(f"\n{distribution.name} {distribution.version}".encode())
    return digest.hexdigest()[:32]


def _for_python(python: str, entries: Mapping[str, ArchiveEntry]) -> dict[str, bytes]:
    """Return the files of the archive for a Python such as ``3.11``. prepare.py depends on these names."""
    files = {**{name: entry.read() for name, entry in entries.items()}, **bytecode(python, entries)}
    # Python finds a package without __init__.py only if the index lists its directory.
    directories = {f"{parent}/" for name in files for parent in PurePosixPath(name).parents if parent.name}
    compiled = {f"lib/{name}": files.pop(name) for name in list(files) if name.endswith(".so")}
    files.update(dict.fromkeys(directories, b""))
    start = files[f"tony_provider/runtime/launch/{launch_context.START}"]
    made = {**compiled, **_indexed(files), launch_context.START: start}
    made.update(_indexed({**files, **generated_code(python, made)}))
    return {f"cp{python.replace('.', '')}/{name}": content for name, content in made.items()}


def _indexed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return runtime.zip with these files, and its index for start.py: the offset and the size of each file."""
    inner = _zipped(files)
    with zipfile.ZipFile(io.BytesIO(inner)) as archive:
        found = {
            info.filename: (info.header_offset + _ZIP_HEADER + len(info.filename.encode()), info.file_size)
            for info in archive.infolist()
        }
    return {"runtime.zip": inner, "index": marshal.dumps(found, _PLAIN)}


def _zipped(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as packed:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3  # Unix, whatever the packing machine is
            info.external_attr = 0o100644 << 16
            packed.writestr(info, content)
    return made.getvalue()
