"""What an import was given: a file, or a call as people type it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import attrs

from tony_provider.importing.imported import NotImportable
from tony_provider.runtime.spec.problems import SpecError
from tony_provider.runtime.spec.source import load_source

_ENDS = re.compile(r"[&;|]+")  # a command, as a shell has it
_REDIRECTS = re.compile(r"[0-9]?>")
_GOES_ON = re.compile(r"\\(?:[ \t]+#[^\n]*)?\r?\n")  # also with a remark behind the backslash, as documents have it
_BEFORE = re.compile(r"exec|nohup|time|sudo|do|then|else|[{(!]|[A-Za-z_]\w*=.*", re.DOTALL)  # a command's own words
_QUOTED = re.compile(r"'[^']*'")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_ARRAY = re.compile(r"\$\{\w+\[[@*]\]")
_MOST_BYTES = 1 << 20  # of a file, whose reading takes some 20 s at worst; TonY's whole configuration has some 100 KiB
_LONGEST_LINE = 1 << 15  # letters of a command; reading one takes time that grows with their square
_MOST_WRITTEN_OUT = 8 << 20  # of a document, in letters and values


@attrs.frozen(slots=False)  # for what is kept once it was read
class Source:
    """A file with its text, or the words of a call."""

    told: str  # what messages call it
    folder: Path  # where relative paths in it begin
    text: str = ""
    words: Sequence[str] = ()

    @property
    def is_file(self) -> bool:
        return not self.words

    @property
    def begins_like_xml(self) -> bool:
        return self.text.lstrip("\ufeff \t\r\n").startswith("<")

    @cached_property
    def document(self) -> Mapping[str, Any] | None:
        """The mapping that the text holds as YAML or JSON; None: it holds none.

        Raises NotImportable where aliases make far more of it than was written.
        """
        if not self.is_file or self.begins_like_xml:
            return None
        try:
            plain = load_source(self.text)
            size = _size(plain, {})
        except SpecError:
            return None
        except RecursionError:
            raise NotImportable(f"{self.told}: nested too deeply") from None
        if size > _MOST_WRITTEN_OUT:
            most = _MOST_WRITTEN_OUT >> 20
            raise NotImportable(
                f"{self.told}: with its aliases written out it is larger than {most} MiB, and no job is"
            )
        return plain

    def calls(self, is_call: Callable[[Sequence[str]], bool]) -> list[Sequence[str]]:
        """The words of the calls in it that are of some kind: its own, or those of each command of a shell script."""
        if self.words:
            return [self.words] if is_call(self.words) else []
        return [words for _, words in self._commands if is_call(words)]

    @cached_property
    def _commands(self) -> list[tuple[str, Sequence[str]]]:
        """The lines of a script that are commands, with the words of each."""
        if self.begins_like_xml:
            return []
        lines = _GOES_ON.sub(" ", self.text).splitlines()
        return [(line, words) for line in lines for words in _commands_in(line)]

    def shell_variables(self, is_call: Callable[[Sequence[str]], bool]) -> list[str]:
        """The variables that a shell would fill in of the calls in a script, by their names."""
        lines = [] if self.words else [line for line, words in self._commands if is_call(words)]
        return list(dict.fromkeys(name for line in lines for name in _VARIABLE.findall(_QUOTED.sub("", line))))

    def call(self, is_call: Callable[[Sequence[str]], bool]) -> Sequence[str] | None:
        """The words of the one call of a kind; None: there is none. Raises NotImportable where there are several."""
        found = self.calls(is_call)
        if len(found) > 1:
            raise NotImportable(
                f"{self.told}: has {len(found)} such calls, and a job is made of one; give that after `--`"
            )
        if found and not self.words and any(_ARRAY.search(word) for word in found[0]):
            raise NotImportable(
                f"{self.told}: the words of its call are in an array, which only running the script would tell; give "
                "the whole call after `--`"
            )
        return found[0] if found else None


def _size(plain: Any, known: dict[int, int]) -> int:
    """The letters and values of a document with all aliases written out, found without doing so."""
    if isinstance(plain, str):
        return len(plain) + 1
    if not isinstance(plain, (Mapping, list)):
        return 1
    if id(plain) not in known:
        parts = [*plain.keys(), *plain.values()] if isinstance(plain, Mapping) else plain
        known[id(plain)] = 1 + sum(_size(each, known) for each in parts)
    return known[id(plain)]


def _commands_in(line: str) -> Iterator[list[str]]:
    """The words of each command; none of a comment, or of what is no command by itself."""
    if line.lstrip().startswith("#") or len(line) > _LONGEST_LINE:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return
    commands: list[list[str]] = [[]]
    is_redirected = False
    for word in takewhile(lambda word: not word.startswith("#"), words):
        if _ENDS.fullmatch(word):
            commands.append([])
            is_redirected = False
            continue
        is_redirected = is_redirected or _REDIRECTS.match(word) is not None
        if not is_redirected:
            commands[-1].append(word)
    for command in commands:
        if own := list(dropwhile(_BEFORE.fullmatch, command)):
            yield own


def source_of(words: Sequence[str]) -> Source:
    """The file that the one word names, or the call that all of them are. Raises NotImportable."""
    path = Path(words[0])
    if len(words) == 1 and "(" in words[0] and "run_on_yarn" in words[0]:
        return Source("the call", Path.cwd(), text=words[0])
    if len(words) > 1 and not path.is_file():
        return Source("the call", Path.cwd(), words=tuple(words))
    if len(words) > 1:
        raise NotImportable(
            f"{path} is a file, and {words[1]!r} follows it; give the file alone, or the whole call after `--`"
        )
    return Source(str(path), path.absolute().parent, text=read_text(path))


def read_text(path: Path) -> str:
    """A file's text. Raises NotImportable."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise NotImportable(f"{path} is larger than {_MOST_BYTES >> 20} MiB, and no job is")
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotImportable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
