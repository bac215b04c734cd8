"""Builds of environments take nothing from the current directory, and hand no secret of the caller on."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import attrs
import pytest

from tony_provider.cluster.environments.built_environments import (
    BuildFailed,
    BuildTarget,
    BuiltEnvironments,
    build_environment,
    indexes_of,
)
from tony_provider.cluster.environments.requirements import IndexProblem, read_requirements
from tony_provider.cluster.training.identity import Layout
from tony_provider.runtime.storage.local import LocalStorage

OWN = BuildTarget.of(None, None)
BOTH = pytest.mark.parametrize("installer", ["uv", "pip"])

# A build backend of the package's own: it needs no other package, and leaves what it sees in the module that it builds.
BACKEND = """
import os, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "tonyprobe-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("tonyprobe.py", "ORIGIN = %r\\nSEEN = %r\\n" % (ORIGIN, dict(os.environ)))
        about = "tonyprobe-1.0.dist-info"
        wheel.writestr(about + "/METADATA", "Metadata-Version: 2.1\\nName: tonyprobe\\nVersion: 1.0\\n")
        wheel.writestr(about + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(about + "/RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@attrs.frozen
class Index:
    """A package index with one source distribution, whose module says which index it is from."""

    origin: str
    server: ThreadingHTTPServer

    @classmethod
    def started(cls, folder: Path, origin: str) -> Index:
        root = folder / origin
        page = root / "simple" / "tonyprobe"
        page.mkdir(parents=True)
        files = {"backend.py": f"ORIGIN = {origin!r}\n{BACKEND}", "pyproject.toml": PROJECT}
        files["PKG-INFO"] = "Metadata-Version: 2.1\nName: tonyprobe\nVersion: 1.0\n"
        with tarfile.open(page / "tonyprobe-1.0.tar.gz", "w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(f"tonyprobe-1.0/{name}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
        (page / "index.html").write_text('<!DOCTYPE html><a href="tonyprobe-1.0.tar.gz">tonyprobe-1.0.tar.gz</a>')
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root)))
        Thread(target=server.serve_forever, daemon=True).start()
        return cls(origin, server)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/simple"


@attrs.frozen
class Builder:
    """A person with a configuration of their own, in a directory of somebody else's."""

    home: Path
    directory: Path
    kept: BuiltEnvironments

    def configure(self, url: str) -> None:
        """Name an index in the user's configuration of both installers."""
        for name, text in (
            ("uv/uv.toml", f'index-url = "{url}"\n'),
            ("pip/pip.conf", f"[global]\nindex-url = {url}\n"),
        ):
            (self.home / name).parent.mkdir(exist_ok=True)
            (self.home / name).write_text(text)

    def built(self, installer: str) -> dict[str, str]:
        """Build an environment; return what its module has, and its URI."""
        (self.home / "requirements.txt").write_text("tonyprobe\n")
        uri = build_environment(self.kept, read_requirements(self.home / "requirements.txt"), OWN, installer).uri
        with tarfile.open(uri.removeprefix("file://")) as tar:
            module = tar.extractfile("tonyprobe.py")
            assert module is not None
            found: dict[str, object] = {}
            exec(module.read(), found)
        assert isinstance(found["SEEN"], dict)
        return {**found["SEEN"], "ORIGIN": str(found["ORIGIN"]), "URI": uri}


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    home, directory = tmp_path / "home", tmp_path / "directory"
    home.mkdir()
    directory.mkdir()
    monkeypatch.chdir(directory)
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Builder(home, directory, BuiltEnvironments(LocalStorage(), Layout(f"file://{tmp_path}/staging")))


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[list[Index]]:
    found = [Index.started(tmp_path, name) for name in ("own", "other")]
    yield found
    for each in found:
        each.server.shutdown()
        each.server.server_close()


@BOTH
def test_no_module_and_no_program_of_the_current_directory_runs(
    builder: Builder, indexes: list[Index], installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.configure(indexes[0].url)
    mark = builder.directory / "ran"
    for name in ("pip", "sitecustomize", "tomllib"):
        (builder.directory / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    program = builder.directory / "uv"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", ".")
    assert builder.built(installer)["ORIGIN"] == "own"
    assert not mark.exists()


def test_no_uv_of_the_current_directory_runs(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = builder.directory / "ran"
    program = builder.directory / "uv"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(builder.home / "python"))
    monkeypatch.setenv("PATH", ":/usr/bin:.")
    (builder.home / "requirements.txt").write_text("tonyprobe\n")
    with pytest.raises(Exception, match="cannot find uv"):
        build_environment(builder.kept, read_requirements(builder.home / "requirements.txt"), OWN, "uv")
    assert not mark.exists()


def test_no_configuration_of_the_current_directory_counts(builder: Builder, indexes: list[Index]) -> None:
    own, other = indexes
    builder.configure(own.url)
    (builder.directory / "uv.toml").write_text(f'index-url = "{other.url}"\n')
    assert builder.built("uv")["ORIGIN"] == "own"


@BOTH
def test_source_distributions_see_no_secret(
    builder: Builder, indexes: list[Index], installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.configure(indexes[0].url)
    for name in ("AIRFLOW_CONN_TONY", "AIRFLOW__CORE__FERNET_KEY", "AWS_SECRET_ACCESS_KEY", "UV_PUBLISH_TOKEN"):
        monkeypatch.setenv(name, "hush")
    seen = builder.built(installer)
    assert [name for name, value in seen.items() if "hush" in value or name.startswith("AIRFLOW")] == []
    assert seen["HOME"]


@BOTH
def test_what_another_index_gave_is_another_environment(
    builder: Builder, indexes: list[Index], installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = indexes
    builder.configure(own.url)
    first = builder.built(installer)
    builder.configure(other.url)
    second = builder.built(installer)
    assert ([first["ORIGIN"], second["ORIGIN"]], first["URI"] == second["URI"]) == (["own", "other"], False)
    monkeypatch.setenv("UV_INDEX_URL" if installer == "uv" else "PIP_INDEX_URL", own.url)
    assert builder.built(installer)["ORIGIN"] == "own"


@BOTH
def test_credentials_of_an_index_are_no_part_of_the_key(builder: Builder, installer: str) -> None:
    builder.configure("https://ann:old-token@index.example.com/simple")
    before = indexes_of(installer)
    builder.configure("https://ann:new-token@index.example.com/simple")
    after = indexes_of(installer)
    assert before.chosen_by == after.chosen_by == ["index-url https://index.example.com/simple"]
    assert "token" not in f"{before} {after}"
    assert "new-token" in (after.configuration or after.variables["PIP_INDEX_URL"])


def test_uv_joins_the_files_of_user_and_system(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    system = builder.home / "system"
    (system / "uv").mkdir(parents=True)
    (system / "uv" / "uv.toml").write_text('no-index = true\n[[index]]\nname = "b"\nurl = "https://b.example.com"\n')
    (builder.home / "uv").mkdir()
    (builder.home / "uv" / "uv.toml").write_text(
        'no-index = false\n[[index]]\nname = "a"\nurl = "https://u:p@a.example.com"\n'
    )
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(system))
    found = indexes_of("uv")
    assert found.chosen_by == [
        'index [{"name": "a", "url": "https://a.example.com"}, {"name": "b", "url": "https://b.example.com"}]',
        "no-index false",
    ]


@BOTH
def test_wheels_alone_stay_what_the_user_has_chosen(
    builder: Builder, indexes: list[Index], installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.configure(indexes[0].url)
    before = indexes_of(installer).chosen_by
    monkeypatch.setenv("PIP_ONLY_BINARY", ":all:")
    with (builder.home / "uv" / "uv.toml").open("a") as file:
        file.write("[pip]\nno-build = true\n")
    assert indexes_of(installer).chosen_by != before
    with pytest.raises(BuildFailed, match=f"{installer} could not install"):
        builder.built(installer)


def test_uvs_settings_for_pip_alone_count(builder: Builder, indexes: list[Index]) -> None:
    (builder.home / "uv").mkdir()
    (builder.home / "uv" / "uv.toml").write_text(
        f'index-url = "{indexes[1].url}"\n[pip]\nindex-url = "{indexes[0].url}"\nresolution = "lowest"\n'
    )
    assert indexes_of("uv").chosen_by == [
        f"index-url {indexes[1].url}",
        f"pip.index-url {indexes[0].url}",
        "pip.resolution lowest",
    ]
    (builder.home / "uv" / "uv.toml").write_text(
        f'index-url = "{indexes[1].url}"\n[pip]\nindex-url = "{indexes[0].url}"\n'
    )
    assert builder.built("uv")["ORIGIN"] == "own"


@BOTH
def test_constraints_of_the_configuration_are_refused(
    builder: Builder, installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{installer.upper()}_CONSTRAINT", "/etc/constraints.txt")
    with pytest.raises(IndexProblem, match=r"sets constraint, .* add the constraints to the requirements file"):
        indexes_of(installer)


@BOTH
def test_a_relative_directory_of_packages_is_refused(
    builder: Builder, installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{installer.upper()}_FIND_LINKS", "./wheels")
    with pytest.raises(IndexProblem, match=r"find-links: \./wheels is relative to the current directory"):
        indexes_of(installer)


@BOTH
def test_packages_of_a_configured_directory_count_with_their_content(
    builder: Builder, installer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels" / "six-1.16-py3-none-any.whl"
    found = []
    for place in (str(wheel.parent), wheel.parent.as_uri()):
        monkeypatch.setenv(f"{installer.upper()}_FIND_LINKS", place)
        for content in (b"honest", b"poison"):
            wheel.write_bytes(content)
            found.append(tuple(indexes_of(installer).chosen_by))
    assert len(set(found)) == 4
