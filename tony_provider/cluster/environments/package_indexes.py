"""Collect the package indexes that the caller has configured for an installer, and pass them on explicitly.

An installer runs in an empty directory and reads no configuration by itself. This module collects the settings that
choose packages from the configuration files of the user and of the system, and from environment variables. These
settings are part of an environment's key, so that environments from different indexes have different names. Constraints
are refused, because the key does not cover the content of their files: write them into the file of requirements.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.environments.requirements import packages_in
from tony_provider.cluster.errors import ClusterError
from tony_provider.runtime.child_environment import child_environment

# Settings that choose packages, and so are part of the key. A value may be a list, separated by blanks or line ends.
_CHOOSING = (
    *("index", "default-index", "index-url", "extra-index-url", "find-links", "no-index", "index-strategy"),
    *("no-build", "no-build-package", "no-binary", "no-binary-package", "only-binary", "prefer-binary"),
    *("require-hashes", "pre", "prerelease", "resolution", "exclude-newer", "uploaded-prior-to"),
)
_REFUSED = (
    *("constraint", "build-constraint", "override", "constraint-dependencies", "override-dependencies"),
    "build-constraint-dependencies",
)
_PIP_REACHING = (
    *("trusted-host", "cert", "client-cert", "proxy", "timeout", "default-timeout", "retries", "keyring-provider"),
    *("cache-dir", "no-cache-dir"),
)
_UV_REACHING = ("keyring-provider", "native-tls", "system-certs", "allow-insecure-host")
_UV_VARIABLES = (
    *("UV_KEYRING_PROVIDER", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_INSECURE_HOST", "UV_HTTP_TIMEOUT", "UV_OFFLINE"),
    *("UV_CACHE_DIR", "UV_NO_CACHE", "UV_CONCURRENT_DOWNLOADS", "UV_CREDENTIALS_DIR"),
)
_UV_LOGIN = re.compile(r"UV_INDEX_\w+_(?:USERNAME|PASSWORD)")
_NETWORK = (
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC"),
)
_COMPILER = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_SECONDS = 60.0
_MOST_SAID = 1000  # characters of pip's own message


class IndexProblem(ClusterError):  # noqa: N818 - named for what is wrong, as the others
    """The configuration of an installer cannot be used."""

    permanent = True


@attrs.frozen
class PackageIndexes:
    """The index settings of one installer."""

    chosen_by: list[str]  # settings that choose packages, without credentials; empty for the default index
    variables: dict[str, str] = attrs.field(repr=False)  # the installer's whole environment
    configuration: str = attrs.field(default="", repr=False)  # the content of uv's configuration file


def pip_command() -> list[str]:
    """Return the command that runs this Python's pip, and never a module ``pip`` of the current directory."""
    return [sys.executable, "-P", "-m", "pip"]


def pip_indexes(directory: Path) -> PackageIndexes:
    """Return the settings of pip, as `pip config list` reports them in an empty directory. Raises IndexProblem."""
    own = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    if file := own.get("PIP_CONFIG_FILE"):
        own["PIP_CONFIG_FILE"] = str(Path(file).absolute())
    variables = _variables()
    try:
        done = subprocess.run(
            [*pip_command(), "config", "list"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
            cwd=directory,
            env={**variables, **own},
            stdin=subprocess.DEVNULL,
        )
        found = _pip_settings(done.stdout)
        _check(found)
    except subprocess.CalledProcessError as error:
        raise IndexProblem(f"pip cannot list its configuration: {error.stderr.strip()[-_MOST_SAID:]}") from error
    except (subprocess.TimeoutExpired, ValueError, SyntaxError) as error:
        raise IndexProblem(f"pip cannot list its configuration: {error}") from error
    given = {
        f"PIP_{name.upper().replace('-', '_')}": found[name] for name in (*_CHOOSING, *_PIP_REACHING) if name in found
    }
    return PackageIndexes(_chosen_by(found), {**variables, **given, "PIP_CONFIG_FILE": os.devnull})


def _pip_settings(listed: str) -> dict[str, str]:
    """Return the settings by name. Settings of `pip install` override general settings, and variables override both."""
    by_section: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        name, separator, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if separator:
            by_section.setdefault(section, {})[key] = str(ast.literal_eval(value)).strip()
    return {**by_section.get("global", {}), **by_section.get("install", {}), **by_section.get(":env:", {})}


def uv_indexes() -> PackageIndexes:
    """Return the settings of uv from its files for the user and the system, and from variables. Raises IndexProblem."""
    files: dict[str, Any] = {}
    for path in _uv_files():
        _combine(files, _uv_settings(path))
    own = {f"UV_{name.upper().replace('-', '_')}": name for name in (*_CHOOSING, *_REFUSED)}
    variables = {name: value for name, value in os.environ.items() if name in own or _UV_LOGIN.fullmatch(name)}
    given = {own[name]: value for name, value in variables.items() if name in own}
    _check(given)
    configuration = "".join(f"{name} = {_toml(value)}\n" for name, value in files.items())
    chosen_by = [*_chosen_by(given), *_chosen_by(files)]
    return PackageIndexes(chosen_by, {**_variables(_UV_VARIABLES), **variables}, configuration)


def _uv_files() -> Iterator[Path]:
    """Yield the configuration files that exist, the one that overrides the others first."""
    if named := os.environ.get("UV_CONFIG_FILE"):
        yield Path(named).absolute()
        return
    if os.environ.get("UV_NO_CONFIG"):
        return
    users = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    systems = [Path(each) for each in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)]
    system = next((found for each in systems if (found := each / "uv" / "uv.toml").is_file()), Path("/etc/uv/uv.toml"))
    for path in (users / "uv" / "uv.toml", system):
        if path.is_absolute() and path.is_file():
            yield path


def _uv_settings(path: Path) -> dict[str, Any]:
    try:
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise IndexProblem(f"uv's configuration {path} cannot be read: {error}") from error
    _check(whole)
    found = {name: whole[name] for name in (*_CHOOSING, *_UV_REACHING) if name in whole}
    of_pip = whole.get("pip", {})  # these settings override the others
    if isinstance(of_pip, dict):
        _check(of_pip)
        found["pip"] = {name: of_pip[name] for name in (*_CHOOSING, *_UV_REACHING) if name in of_pip}
    return found


def _combine(settings: dict[str, Any], less_important: Mapping[str, Any]) -> None:
    """Add settings as uv combines its files: join lists, and keep the more important file's value otherwise."""
    for name, value in less_important.items():
        mine = settings.get(name)
        if isinstance(mine, dict) and isinstance(value, dict):
            _combine(mine, value)
        elif isinstance(mine, list) and isinstance(value, list):
            settings[name] = [*mine, *value]
        elif mine is None:
            settings[name] = value


def _variables(more: tuple[str, ...] = ()) -> dict[str, str]:
    return child_environment((*_NETWORK, *_COMPILER, *more))


def _chosen_by(settings: Mapping[str, Any]) -> list[str]:
    chosen = {name: _CREDENTIALS.sub("", _as_text(settings[name])) for name in _CHOOSING if name in settings}
    of_pip = _chosen_by(settings["pip"]) if isinstance(settings.get("pip"), dict) else []
    local = [Path(place.removeprefix("file://")) for place in _links(settings) if place.startswith(("/", "file://"))]
    return [
        *(f"{name} {value}" for name, value in chosen.items() if value),
        *(each for place in local for each in packages_in(place)),
        *(f"pip.{each}" for each in of_pip),
    ]


def _links(settings: Mapping[str, Any]) -> list[str]:
    found = settings.get("find-links", [])
    return found.replace(",", " ").split() if isinstance(found, str) else [str(place) for place in found]


def _as_text(value: Any) -> str:
    """Return a setting as one line that does not depend on how the setting was written."""
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _check(settings: Mapping[str, Any]) -> None:
    """Refuse constraints, and relative directories of packages, because the installer runs in another directory.

    Raises IndexProblem.
    """
    if refused := [name for name in _REFUSED if settings.get(name)]:
        raise IndexProblem(
            f"the installer's configuration sets {', '.join(refused)}, which would not be part of the environment's "
            "name; write the constraints into the file of requirements (-c FILE), and unset this for the command"
        )
    for place in _links(settings):
        if "://" not in place and not Path(place).is_absolute():
            raise IndexProblem(f"find-links: {place} is relative to the current directory; write an absolute path")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str)
