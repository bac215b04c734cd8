"""Requirements of an environment, and the installer's settings that choose packages.

Requirements are a file in pip's format with its included files, or a ``pylock.toml``. Both the requirements and the
settings are part of an environment's key.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.sources import sha256_of_local
from tony_provider.runtime.common.helper_processes import child_environment

_INCLUDED = re.compile(r"(?:-r|-c|--requirement|--constraint)[ =]*(?P<file>.+)")
_FIND_LINKS = re.compile(r"(?:-f|--f[a-z-]*)[ =]*(?P<place>[^\s'\"]+|'[^']+'|\"[^\"]+\")")
_EDITABLE = re.compile(r"(?:-e|--editable)\b")
# A path has a slash, a leading dot, or the suffix of an installable file. The name of a package may precede it.
_PATH = r"(?!-|[^;]*://)(?:\.|[^\s;]*/|[^\s;]+\.(?:whl|zip|tar\.\w+|tgz)(?![^\s;\[]))"
_LOCAL = re.compile(rf"(?:[^@\s]+ ?@ ?)?(?:file:|{_PATH}).*")
# Options that name files. pip accepts them anywhere in a line of options, and also abbreviations of the long names.
_FILE_OPTIONS = ("--requirement", "--constraint", "--editable", "--find-links")
_SHORT_FILE_OPTIONS = ("-r", "-c", "-e", "-f")
_COMMENT_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)  # a final backslash does not continue such a line
_COMMENT = re.compile(r"(?:^|\s)#.*")
_LOCK = re.compile(r"pylock(?:\.[^.]+)?\.toml")
_OF_UV = "`uv export --no-emit-project` leaves it out"
_OF_THIS_MACHINE = (
    "is on this machine, and the environment's name would not reflect its content; give the job such code by its "
    "key `files`, or as a wheel"
)


class RequirementsProblem(ClusterError):  # noqa: N818 - named for what is wrong, as the others
    """The requirements file cannot be used to build an environment."""

    permanent = True


@attrs.frozen
class Requirements:
    """The lines of a requirements file, without comments."""

    file: Path
    lines: list[str]

    @property
    def is_lock(self) -> bool:
        """Return whether the file is a ``pylock.toml``, which pip does not support."""
        return _LOCK.fullmatch(self.file.name) is not None

    @property
    def has_hashes(self) -> bool:
        return any("--hash" in line for line in self.lines)

    def key(self, python: str, platform: str, indexes: Sequence[str]) -> str:
        """Return the key of the environment that these requirements give for this Python and platform.

        :param indexes: the installer's settings that choose packages, without credentials.
        """
        content = "\n".join(["2", python, platform, *indexes, "", *self.lines])
        return hashlib.sha256(content.encode()).hexdigest()


def read_requirements(file: Path) -> Requirements:
    """Read the requirements in a file. Raises RequirementsProblem."""
    if _LOCK.fullmatch(file.name):
        return Requirements(file, _lock(file).splitlines())
    if file.suffix in (".lock", ".toml"):
        raise RequirementsProblem(
            f"{file} is neither a requirements file of pip nor a pylock.toml; convert it, for example by "
            "`uv export --no-emit-project --format requirements.txt` or `poetry export`"
        )
    if file.suffix in (".yml", ".yaml"):
        raise RequirementsProblem(f"{file} is not a requirements file of pip; pack a conda environment with conda-pack")
    lines = list(_lines(file, []))
    if not lines:
        raise RequirementsProblem(f"{file} contains no requirement")
    return Requirements(file, lines)


def _lock(file: Path) -> str:
    """Return the text of a lock file. Refuse packages in local directories, because a lock file has no hash of them."""
    text = _text(file)
    try:
        packages = tomllib.loads(text).get("packages", [])
    except tomllib.TOMLDecodeError as error:
        raise RequirementsProblem(f"{file} cannot be read: {error}") from error
    for each in packages if isinstance(packages, list) else []:
        if isinstance(each, dict) and "directory" in each:
            raise RequirementsProblem(f"{file}: {each.get('name')} {_OF_THIS_MACHINE}. {_OF_UV}")
    return text


def _lines(file: Path, above: list[Path]) -> Iterator[str]:
    """Yield the lines of the file. Replace each ``-r`` or ``-c`` by the lines of the included file."""
    if file.resolve() in above:
        raise RequirementsProblem(f"{file} includes itself")
    joined = re.sub(r"\\\n", " ", _COMMENT_LINE.sub("", _text(file)))
    for line in (" ".join(_COMMENT.sub("", each).split()) for each in joined.splitlines()):
        if not line:
            continue
        if _EDITABLE.match(line) and "://" in line:
            raise RequirementsProblem(f"{file}: {line!r} would be a checkout on this machine; write NAME @ URL instead")
        if _EDITABLE.match(line):
            raise RequirementsProblem(f"{file}: {line!r} {_OF_THIS_MACHINE}. {_OF_UV}")
        if _LOCAL.fullmatch(line):
            raise RequirementsProblem(f"{file}: {line!r} {_OF_THIS_MACHINE}")
        included = _INCLUDED.fullmatch(line)
        if included is None:
            if not _FIND_LINKS.fullmatch(line) and (option := _file_option(line)):
                raise RequirementsProblem(
                    f"{file}: {line!r} includes files by {option}, and their content would not be reflected in the "
                    "environment's name; write -r FILE, -c FILE or -f PLACE alone on a line"
                )
            yield line
            yield from _content_of_links(file, line)
            continue
        name = included["file"].strip("'\"")
        if "://" in name:
            raise RequirementsProblem(
                f"{file}: {name} is not read, because its content may change; download it, and name the file here"
            )
        yield "-c" if line.startswith(("-c", "--c")) else "-r"
        yield from _lines(file.parent / name, [*above, file.resolve()])


def _content_of_links(file: Path, line: str) -> Iterator[str]:
    """If a line names a local directory of packages, yield the directory's content, so that it is part of the key."""
    named = _FIND_LINKS.fullmatch(line)
    place = named["place"].strip("'\"").removeprefix("file://") if named else ""
    if not place or "://" in place:
        return
    yield from packages_in(file.parent / place)


def packages_in(place: Path) -> Iterator[str]:
    """Yield the name and hash of each file of ``place``: a directory of packages, or a single file with a list."""
    files = sorted(place.iterdir()) if place.is_dir() else [place] if place.is_file() else []
    for each in files:
        if each.is_file():
            yield f"{each.name} {sha256_of_local(each)}"


def _file_option(line: str) -> str:
    """Return the option in a line that makes pip read a file whose content is not in the key, or ""."""
    for word in line.split() if line.startswith("-") else ():
        name = word.partition("=")[0]
        is_long = len(name) > len("--") and any(each.startswith(name) for each in _FILE_OPTIONS)
        if is_long or word.startswith(_SHORT_FILE_OPTIONS):
            return name
    return ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RequirementsProblem(f"{file} cannot be read: {error}") from error


# Settings that choose packages, and are therefore part of the key. The items of a list are separated by white space.
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
_SECONDS = 60.0  # time limit of `pip config list`
_MOST_SAID = 1000  # characters of pip's message in an error


class IndexProblem(ClusterError):  # noqa: N818 - named for what is wrong, as the others
    """The configuration of an installer cannot be used."""

    permanent = True


@attrs.frozen
class PackageIndexes:
    """The settings of one installer: package indexes, and the variables and configuration to run it with."""

    chosen_by: list[str]  # settings that choose packages, without credentials; empty for the default index
    variables: dict[str, str] = attrs.field(repr=False)  # the installer's whole environment
    configuration: str = attrs.field(default="", repr=False)  # the content of uv's configuration file


def pip_command() -> list[str]:
    """Return the command that runs this Python's pip, and never a module ``pip`` of the current directory."""
    return [sys.executable, "-P", "-m", "pip"]


def pip_indexes(directory: Path) -> PackageIndexes:
    """Return pip's settings, as reported by `pip config list` in an empty ``directory``. Raises IndexProblem."""
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
    """Return pip's settings by name. `[install]` overrides `[global]`, and environment variables override both."""
    by_section: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        name, separator, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if separator:
            by_section.setdefault(section, {})[key] = str(ast.literal_eval(value)).strip()
    return {**by_section.get("global", {}), **by_section.get("install", {}), **by_section.get(":env:", {})}


def uv_indexes() -> PackageIndexes:
    """Return uv's settings from environment variables, the user's file and the system's file. Raises IndexProblem."""
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
    """Yield uv's configuration files that exist. Earlier files override later files."""
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
    of_pip = whole.get("pip", {})  # for `uv pip`, these settings override the general ones
    if isinstance(of_pip, dict):
        _check(of_pip)
        found["pip"] = {name: of_pip[name] for name in (*_CHOOSING, *_UV_REACHING) if name in of_pip}
    return found


def _combine(settings: dict[str, Any], less_important: Mapping[str, Any]) -> None:
    """Add the settings of a less important file as uv does: join lists, and keep other values that are already set."""
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
    """Return a setting on one line, so that equal values in different notation give the same key."""
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _check(settings: Mapping[str, Any]) -> None:
    """Refuse constraints, which are not part of the key, and relative package directories.

    The installer runs in another directory, where relative paths would be wrong.

    Raises IndexProblem.
    """
    if refused := [name for name in _REFUSED if settings.get(name)]:
        raise IndexProblem(
            f"the installer's configuration sets {', '.join(refused)}, which would not be part of the environment's "
            "name; add the constraints to the requirements file (-c FILE), and unset these settings for the command"
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
