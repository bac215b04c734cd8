"""The files of a directory that a job takes along: all below it, but for what is ignored.

Rules are those of git, in ``.gitignore`` and then ``.tonyignore`` of the directory and of those below it: the last one
that speaks of a file counts, and what lies in an ignored directory is not looked at. Directories above are not asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from pathspec import GitIgnoreSpec

IGNORED_DIRECTORIES = frozenset({"__pycache__", ".git"})
IGNORE_FILES = (".gitignore", ".tonyignore")  # the later one has the last word
_SLASH_AT_END = re.compile(r"(?<=[^/!\\])/ *$")


class IgnoreFileError(ValueError):
    """An ignore file cannot be read, or has a line that is no rule."""


@attrs.frozen
class _Rules:
    """Those of one directory."""

    directory: Path
    of_files: GitIgnoreSpec
    of_directories: GitIgnoreSpec  # as of files: a rule for directories alone does without its slash

    @classmethod
    def of_lines(cls, directory: Path, lines: Sequence[str]) -> _Rules:
        """Raises ValueError for a line that is no rule."""
        without_slashes = [_SLASH_AT_END.sub("", line) for line in lines]
        return cls(directory, GitIgnoreSpec.from_lines(lines), GitIgnoreSpec.from_lines(without_slashes))

    def ignores(self, path: Path, *, is_directory: bool) -> bool | None:
        """None: they say nothing of it.

        Of a directory it counts what is said of itself: ``data/**`` is all that is in it, and after ``*`` it is ``!*/``
        that has directories entered.
        """
        spec = self.of_directories if is_directory else self.of_files
        return spec.check_file(path.relative_to(self.directory).as_posix()).include


def files_below(
    directory: Path, left_behind: list[Path], above: Sequence[_Rules] = (), way: Sequence[Path] = ()
) -> Iterator[Path]:
    """Every file, and what cannot be entered: directories that may not be read, links to where they lie in.

    What ignore files say to ignore is added to ``left_behind``. ``way``: the directories that lead here, without links.
    Raises IgnoreFileError.
    """
    rules = [*above, *_rules_of(directory)]
    way = [*way, directory.resolve()]
    for entry in sorted(directory.iterdir()):
        enters = entry.is_dir() and _is_enterable(entry, way)
        if enters and entry.name in IGNORED_DIRECTORIES:
            continue
        if _ignored(entry, rules, is_directory=entry.is_dir()):
            left_behind.append(entry)
        elif enters:
            yield from files_below(entry, left_behind, rules, way)
        else:
            yield entry


def _ignored(path: Path, rules: Sequence[_Rules], *, is_directory: bool) -> bool:
    said = (each.ignores(path, is_directory=is_directory) for each in reversed(rules))
    return next((word for word in said if word is not None), False)


def _rules_of(directory: Path) -> Iterator[_Rules]:
    lines: list[str] = []
    for file in (directory / name for name in IGNORE_FILES):
        if not file.is_file():
            continue
        try:
            own = file.read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
            _Rules.of_lines(directory, own)  # each file for itself, to name the one that is wrong
        except (OSError, ValueError) as error:
            raise IgnoreFileError(f"{file} cannot be used: {error}") from error
        lines += own
    if lines:
        yield _Rules.of_lines(directory, lines)


def _is_enterable(directory: Path, way: Sequence[Path]) -> bool:
    target = directory.resolve()
    leads_back = any(passed.is_relative_to(target) for passed in way)
    return os.access(directory, os.R_OK | os.X_OK) and not leads_back
