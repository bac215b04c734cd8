"""Requirements that an environment is built of: a file in pip's form, those that it includes, or a ``pylock.toml``."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.known_contents import sha256_of_local

_INCLUDED = re.compile(r"(?:-r|-c|--requirement|--constraint)[ =]*(?P<file>.+)")
_FIND_LINKS = re.compile(r"(?:-f|--f[a-z-]*)[ =]*(?P<place>[^\s'\"]+|'[^']+'|\"[^\"]+\")")
_EDITABLE = re.compile(r"(?:-e|--editable)\b")
# Paths, also after a name: with a slash, a dot in front, or the ending of what can be installed.
_PATH = r"(?!-|[^;]*://)(?:\.|[^\s;]*/|[^\s;]+\.(?:whl|zip|tar\.\w+|tgz)(?![^\s;\[]))"
_LOCAL = re.compile(rf"(?:[^@\s]+ ?@ ?)?(?:file:|{_PATH}).*")
# Options that name files, as pip finds them: anywhere in a line of options, and by the beginning of a long name.
_FILE_OPTIONS = ("--requirement", "--constraint", "--editable", "--find-links")
_SHORT_FILE_OPTIONS = ("-r", "-c", "-e", "-f")
_COMMENT_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)  # which goes on with no backslash at its end
_COMMENT = re.compile(r"(?:^|\s)#.*")
_LOCK = re.compile(r"pylock(?:\.[^.]+)?\.toml")
_OF_UV = "`uv export --no-emit-project` leaves it out"
_OF_THIS_MACHINE = (
    "is of this machine, and what is in it would not be told by the environment's name; give the job such code by its "
    "key files, or as a wheel"
)


class RequirementsProblem(ClusterError):  # noqa: N818 - named for what is wrong, as the others
    """A file of requirements that no environment can be built of."""

    permanent = True


@attrs.frozen
class Requirements:
    """What is to be installed, as far as it counts: comments do not."""

    file: Path
    lines: list[str]

    @property
    def is_lock(self) -> bool:
        """Whether it is a ``pylock.toml``, which pip does not read."""
        return _LOCK.fullmatch(self.file.name) is not None

    @property
    def has_hashes(self) -> bool:
        return any("--hash" in line for line in self.lines)

    def key(self, python: str, platform: str, indexes: Sequence[str]) -> str:
        """Return the key of the environment that these requirements give for this Python and platform.

        :param indexes: the settings that choose packages, without credentials.
        """
        content = "\n".join(["2", python, platform, *indexes, "", *self.lines])
        return hashlib.sha256(content.encode()).hexdigest()


def read_requirements(file: Path) -> Requirements:
    """Raises RequirementsProblem."""
    if _LOCK.fullmatch(file.name):
        return Requirements(file, _lock(file).splitlines())
    if file.suffix in (".lock", ".toml"):
        raise RequirementsProblem(
            f"{file} is neither a file of requirements in pip's form nor a pylock.toml; make one of it, such as by "
            "`uv export --no-emit-project --format requirements.txt` or `poetry export`"
        )
    if file.suffix in (".yml", ".yaml"):
        raise RequirementsProblem(
            f"{file} is no file of requirements in pip's form; an environment of conda's is packed by conda-pack"
        )
    lines = list(_lines(file, []))
    if not lines:
        raise RequirementsProblem(f"{file} names no requirement")
    return Requirements(file, lines)


def _lock(file: Path) -> str:
    """What is in a lock; it names content by its hash, but for directories."""
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
    """Of the file, and of those that it includes in their place."""
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
                    f"{file}: {line!r} takes files by {option}, and what is in them would not be told by the "
                    "environment's name; write -r FILE, -c FILE or -f PLACE alone on a line"
                )
            yield line
            yield from _content_of_links(file, line)
            continue
        name = included["file"].strip("'\"")
        if "://" in name:
            raise RequirementsProblem(
                f"{file}: {name} is not read, since what is in it may change; download it, and name the file here"
            )
        yield "-c" if line.startswith(("-c", "--c")) else "-r"
        yield from _lines(file.parent / name, [*above, file.resolve()])


def _content_of_links(file: Path, line: str) -> Iterator[str]:
    """Yield the content of a local directory that a line names for packages, so that it is part of the key."""
    named = _FIND_LINKS.fullmatch(line)
    place = named["place"].strip("'\"").removeprefix("file://") if named else ""
    if not place or "://" in place:
        return
    yield from packages_in(file.parent / place)


def packages_in(place: Path) -> Iterator[str]:
    """Yield name and hash of each file in a directory that packages come from, or of a file that lists packages."""
    files = sorted(place.iterdir()) if place.is_dir() else [place] if place.is_file() else []
    for each in files:
        if each.is_file():
            yield f"{each.name} {sha256_of_local(each)}"


def _file_option(line: str) -> str:
    """Return the option of a line that has pip read a file that is not part of the key; empty if there is none."""
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
