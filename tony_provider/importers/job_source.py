"""What an import was given: a file, or a call as people type it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import dropwhile, islice, takewhile
from pathlib import Path
from typing import Any

import attrs

from tony_provider.importers.key_table import Draft, Keys, NotImportable
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import load_source

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


@attrs.frozen
class Options:
    """What a call says: each option with its values, in order, and what stands after all options."""

    given: Sequence[tuple[str, str]]  # names without hyphens; an option without a value has an empty one
    rest: Sequence[str]

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.given if each == name]

    def last(self, name: str) -> str | None:
        found = self.all(name)
        return found[-1] if found else None


def read_options(words: Sequence[str], *, flags: Collection[str] = (), hyphens: Sequence[str] = ("--", "-")) -> Options:
    """The options at the beginning of ``words``; the first word that is none, and what follows it, is the rest.

    An option takes the next word, or what follows its equals sign; ``flags`` take none. Raises NotImportable.
    """
    given: list[tuple[str, str]] = []
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return Options(given, words[place + 1 :])
        start = next((each for each in hyphens if word.startswith(each) and len(word) > len(each)), None)
        if start is None:
            break
        name, equals, value = word[len(start) :].partition("=")
        place += 1
        if not equals and name not in flags:
            if place == len(words):
                raise NotImportable(f"the option {word} has no value")
            value = words[place]
            place += 1
        given.append((name, value))
    return Options(given, words[place:])


@attrs.frozen
class System:
    """A system whose jobs are read."""

    name: str  # as --from has it
    title: str  # as people call it
    page: str  # of the documents, without its ending
    takes: str  # what is read of it, for messages
    keys: Sequence[Keys]  # every table that it reads by, for the documents
    knows: Callable[[Source], bool]  # that a file, or a call, is one of its own
    read: Callable[[Source], Draft]  # raises NotImportable


_VENV = "venv"  # the directory that TonY unpacks an environment into
_BASH = re.compile(r"(?:^|[;&|(\n][ \t]*)(?:source|declare|shopt|pushd|popd)\s|\[\[|<<<|<\(|\bpipefail\b|&>|\$\{!")


def for_sh(text: str) -> str:
    """A command that another system has bash run: /bin/sh does, unless it says something that is bash's alone."""
    return f"bash -c {shlex.quote(text)}" if _BASH.search(text) else text


def python_call(program: str, *, arguments: str | None, python: str | None, in_venv: bool, top: str) -> str:
    """Return the command that TonY's client makes of a program.

    ``in_venv``: a relative ``python`` lies in the environment, as ``unpacked_environment`` unpacks it. ``top``: the way
    from where the command runs to the working directory.
    """
    if python is not None and in_venv and not python.startswith("/"):
        python = f"{top}{_VENV}/{python}"
    return " ".join(part for part in (python, program, arguments) if part)


def unpacked_environment(draft: Draft, environment: str) -> None:
    """Unpack an environment where TonY always does: commands of any kind may name a file in it."""
    draft.add("archives", f"{environment}::{_VENV}", "-python_venv")
    draft.leave(
        "-python_venv",
        "is unpacked as TonY does it. Packed by venv-pack or conda-pack, it can be `python_env`, whose `bin` comes "
        "first on PATH",
        environment,
    )


def source_folder(draft: Draft, name: str, below: Path, key: str) -> str:
    """Take a source directory along: what is in it lies in the working directory itself.

    Where this machine has it not, it is taken as a whole, and what is returned is the directory to begin commands in.
    """
    folder = below / name
    if folder.is_dir():
        for each in sorted(folder.iterdir()):
            if not each.name.startswith(".") and each.name != "__pycache__":
                draft.add("files", f"{name.rstrip('/')}/{each.name}", key)
        return ""
    draft.add("files", name.rstrip("/"), key)
    draft.leave(
        key,
        "is not on this machine, so it is taken as a whole; commands begin in it, and other files are above it",
        name,
    )
    return shlex.quote(Path(name.rstrip("/")).name)


def say_unfilled(draft: Draft, source: Source, is_call: Callable[[Sequence[str]], bool]) -> None:
    """List those that have come into the job."""
    values = list(_texts(draft.job))
    for name in source.shell_variables(is_call):
        if any(re.search(rf"\$\{{?{name}\b", text) for text in values):
            draft.leave(
                f"${name}",
                "is filled in by the shell that runs the script, and by nobody here; have it print the call, and give "
                "that after `--`",
            )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


_PROGRAMS = (".py", ".sh", ".bash")
_MOST_FILES = 10_000  # of a directory


def carry_variables(draft: Draft, folder: Path, variables: Mapping[str, str], instead: Mapping[str, str]) -> None:
    """Have commands set the variables of another system that their programs read, and list those that nothing sets.

    A program is read if it is among the job's files and on this machine. ``variables``: their names -> our expressions.
    ``instead``: names of variables without an expression -> what the program has to do instead.
    """
    already = _given(draft.get("framework"))
    wanted = [name for name in (*variables, *instead) if name not in already]
    programs = list(_variable_texts(draft, folder))
    if not programs:
        told = ", ".join(wanted)
        draft.leave(
            "variables", f"no program is there to be looked at; should it read one of {told}, the command has to set it"
        )
        return
    named = [name for name in wanted if any(_names(text, name) for text in programs)]
    for name in named:
        if name in instead:
            draft.leave(name, f"is read by the program, and nothing sets it: {instead[name]}")
    if found := [name for name in named if name in variables]:
        draft.exports = "export " + " ".join(f'{name}="{variables[name]}"' for name in found)
        draft.leave(", ".join(found), "are set by the command, since the program reads them; it can read ours instead")


def _given(framework: Any) -> set[str]:
    return {"RANK", "WORLD_SIZE"} if framework == "pytorch" else set()


def _names(text: str, name: str) -> bool:
    """As a variable: in quotes, or as a shell's."""
    return re.search(rf"[\"'${{]{name}\b", text) is not None


def _variable_texts(draft: Draft, folder: Path) -> Iterator[str]:
    """Yield the texts of the job's programs that this machine has and can read."""
    for each in draft.files():
        for program in islice(_inside(folder / each.partition("::")[0]), _MOST_FILES):
            try:
                if program.suffix in _PROGRAMS and program.stat().st_size <= _MOST_BYTES:
                    yield program.read_text(encoding="utf-8", errors="replace")
            except (OSError, ValueError):
                continue  # the file is missing or unreadable, is not a regular file, or has an impossible name


def _inside(path: Path) -> Iterator[Path]:
    try:
        yield from path.rglob("*") if path.is_dir() else [path]
    except (OSError, ValueError):
        return
