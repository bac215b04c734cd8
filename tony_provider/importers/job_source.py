"""Sources of imports (files, or calls of a client), and helpers that several importers share.

The helpers parse options and shell commands, carry over source directories, and export the other system's variables.
"""

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
from tony_provider.runtime.jobspec.problems import SpecError, leaves
from tony_provider.runtime.parsing.parse import load_source

_ENDS = re.compile(r"[&;|]+")  # separators of shell commands
_REDIRECTS = re.compile(r"[0-9]?>")
# line continuation; in documentation, a comment may follow the backslash
_GOES_ON = re.compile(r"\\(?:[ \t]+#[^\n]*)?\r?\n")
_BEFORE = re.compile(r"exec|nohup|time|sudo|do|then|else|[{(!]|[A-Za-z_]\w*=.*", re.DOTALL)  # words before a command
_QUOTED = re.compile(r"'[^']*'")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_ARRAY = re.compile(r"\$\{\w+\[[@*]\]")
_MOST_BYTES = 1 << 20  # maximum bytes of a file; parsing takes up to 20 s. TonY's whole configuration has about 100 KiB
_LONGEST_LINE = 1 << 15  # maximum characters of a command, because parsing time is quadratic
_MOST_WRITTEN_OUT = 8 << 20  # maximum characters plus values of a document after the expansion of its aliases


@attrs.frozen(slots=False)  # cached properties need a __dict__
class Source:
    """A file with its text, or the words of a call."""

    label: str  # name of the source in messages
    folder: Path  # directory to which relative paths refer
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
        """The mapping that the text contains in YAML or JSON, or None if it contains no mapping.

        Raises NotImportable if the document is too large after the expansion of its YAML aliases.
        """
        if not self.is_file or self.begins_like_xml:
            return None
        try:
            plain = load_source(self.text)
            size = _size(plain, {})
        except SpecError:
            return None
        except RecursionError:
            raise NotImportable(f"{self.label}: nested too deeply") from None
        if size > _MOST_WRITTEN_OUT:
            most = _MOST_WRITTEN_OUT >> 20
            raise NotImportable(
                f"{self.label}: with its aliases expanded, it is larger than {most} MiB; no job is that large"
            )
        return plain

    def calls(self, is_call: Callable[[Sequence[str]], bool]) -> list[Sequence[str]]:
        """Return the words of each call that ``is_call`` accepts, from the source's own words or from its script."""
        if self.words:
            return [self.words] if is_call(self.words) else []
        return [words for _, words in self._commands if is_call(words)]

    @cached_property
    def _commands(self) -> list[tuple[str, Sequence[str]]]:
        """The commands of a script, each with its line and its words."""
        if self.begins_like_xml:
            return []
        lines = _GOES_ON.sub(" ", self.text).splitlines()
        return [(line, words) for line in lines for words in _commands_in(line)]

    def shell_variables(self, is_call: Callable[[Sequence[str]], bool]) -> list[str]:
        """Return the variables that a shell would replace in the script's calls of the client (see ``is_call``)."""
        lines = [] if self.words else [line for line, words in self._commands if is_call(words)]
        return list(dict.fromkeys(name for line in lines for name in _VARIABLE.findall(_QUOTED.sub("", line))))

    def call(self, is_call: Callable[[Sequence[str]], bool]) -> Sequence[str] | None:
        """Return the words of the only call that ``is_call`` accepts, or None. Raises NotImportable for several."""
        found = self.calls(is_call)
        if len(found) > 1:
            raise NotImportable(f"{self.label}: contains {len(found)} calls of the client; pass one of them after `--`")
        if found and not self.words and any(_ARRAY.search(word) for word in found[0]):
            raise NotImportable(
                f"{self.label}: the arguments of its call are in a shell array, which is not evaluated; pass "
                "the whole call after `--`"
            )
        return found[0] if found else None

    def arguments(
        self,
        is_call: Callable[[Sequence[str]], bool],
        missing: str,
        after: Callable[[Sequence[str]], Sequence[str]] = lambda call: call[1:],
    ) -> list[str]:
        """Return the arguments of the only call that ``is_call`` accepts, or the source's own words without a call.

        ``after`` returns the arguments of a call. Raises NotImportable with the message ``missing`` if there are none.
        """
        call = self.call(is_call)
        given = list(self.words if call is None else after(call))
        if not given:
            raise NotImportable(f"{self.label}: {missing}")
        return given


def _size(plain: Any, known: dict[int, int]) -> int:
    """Return the size (characters plus values) that a document would have after the expansion of its aliases."""
    if isinstance(plain, str):
        return len(plain) + 1
    if not isinstance(plain, (Mapping, list)):
        return 1
    if id(plain) not in known:
        parts = [*plain.keys(), *plain.values()] if isinstance(plain, Mapping) else plain
        known[id(plain)] = 1 + sum(_size(each, known) for each in parts)
    return known[id(plain)]


def _commands_in(line: str) -> Iterator[list[str]]:
    """Yield the words of each command in a line. Skip comments and incomplete commands."""
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
    """Return the source: the file that a single word names, or the call in ``words``. Raises NotImportable."""
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
    """Return a file's text. Raises NotImportable."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise NotImportable(f"{path} is larger than {_MOST_BYTES >> 20} MiB; no job is that large")
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotImportable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


@attrs.frozen
class Options:
    """The options of a call with their values, in order, and the words after the options."""

    given: Sequence[tuple[str, str]]  # names without hyphens; the value may be empty
    rest: Sequence[str]

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.given if each == name]

    def last(self, name: str) -> str | None:
        found = self.all(name)
        return found[-1] if found else None


def read_options(words: Sequence[str], *, flags: Collection[str] = ()) -> Options:
    """Parse the options at the beginning of ``words``, up to the first word that is no option.

    The value of an option is the text after ``=``, or else the next word. ``flags`` are the options that have no value.
    Raises NotImportable.
    """
    given: list[tuple[str, str]] = []
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return Options(given, words[place + 1 :])
        start = next((each for each in ("--", "-") if word.startswith(each) and len(word) > len(each)), None)
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
    """A system whose jobs can be imported."""

    name: str  # value of --from
    title: str  # display name
    page: str  # documentation page, without suffix
    takes: str  # description of the supported files and calls, for messages
    keys: Sequence[Keys]  # all key tables, for the documents
    knows: Callable[[Source], bool]  # whether a file or call belongs to this system
    read: Callable[[Source], Draft]  # raises NotImportable
    is_call: Callable[[Sequence[str]], bool] = lambda words: False  # whether words are a call of this system's client


_VENV = "venv"  # directory into which TonY unpacks an environment
_BASH = re.compile(r"(?:^|[;&|(\n][ \t]*)(?:source|declare|shopt|pushd|popd)\s|\[\[|<<<|<\(|\bpipefail\b|&>|\$\{!")


def for_sh(text: str) -> str:
    """Return a command for /bin/sh, wrapped in bash if it uses bash syntax."""
    return f"bash -c {shlex.quote(text)}" if _BASH.search(text) else text


def python_call(program: str, *, arguments: str | None, python: str | None, in_venv: bool, top: str) -> str:
    """Return the command that TonY's client builds for a program.

    If ``in_venv``, a relative ``python`` is a path in the environment that ``unpacked_environment`` adds.
    ``top`` is the path from the command's directory to the working directory.
    """
    if python is not None and in_venv and not python.startswith("/"):
        python = f"{top}{_VENV}/{python}"
    return " ".join(part for part in (python, program, arguments) if part)


def unpacked_environment(draft: Draft, environment: str) -> None:
    """Unpack an environment into the directory that TonY uses, because commands may name files in that directory."""
    draft.add("archives", f"{environment}::{_VENV}", "-python_venv")
    draft.leave_out(
        "-python_venv",
        "is unpacked as in TonY. An archive of venv-pack or conda-pack can be `python_env`, whose `bin` comes "
        "first on PATH",
        environment,
    )


def source_folder(draft: Draft, name: str, below: Path, key: str) -> str:
    """Add the contents of a source directory to the job's files, directly in the working directory.

    If this machine lacks the directory, add it as a whole and return its name: commands must start in it. Otherwise
    return an empty string.
    """
    folder = below / name
    if folder.is_dir():
        for each in sorted(folder.iterdir()):
            if not each.name.startswith(".") and each.name != "__pycache__":
                draft.add("files", f"{name.rstrip('/')}/{each.name}", key)
        return ""
    draft.add("files", name.rstrip("/"), key)
    draft.leave_out(
        key,
        "is not on this machine, so the whole directory is added; commands start in it, other files are above it",
        name,
    )
    return shlex.quote(Path(name.rstrip("/")).name)


def report_shell_variables(draft: Draft, source: Source, is_call: Callable[[Sequence[str]], bool]) -> None:
    """List the shell variables of the call that occur in values of the job."""
    values = [value for _, value in leaves(draft.job) if isinstance(value, str)]
    for name in source.shell_variables(is_call):
        if any(re.search(rf"\$\{{?{name}\b", text) for text in values):
            draft.leave_out(
                f"${name}",
                "is a variable of the shell that runs the script, and unknown here; print the call there, and pass it "
                "after `--`",
            )


_PROGRAMS = (".py", ".sh", ".bash")
_MOST_FILES = 10_000  # limit for one directory


def carry_variables(draft: Draft, folder: Path, variables: Mapping[str, str], instead: Mapping[str, str]) -> None:
    """Make commands export the variables of the other system that programs read. List variables without a value.

    Only programs that are among the job's files and on this machine are searched for variables. ``variables`` maps the
    other system's names to shell expressions. ``instead`` maps each name without an expression to advice.
    """
    already = ("RANK", "WORLD_SIZE") if draft.get("framework") == "pytorch" else ()
    wanted = [name for name in (*variables, *instead) if name not in already]
    programs = list(_variable_texts(draft, folder))
    if not programs:
        names = ", ".join(wanted)
        draft.leave_out(
            "variables",
            f"no program was found to inspect; if a program reads one of {names}, set that in the command",
        )
        return
    named = [name for name in wanted if any(_names(text, name) for text in programs)]
    for name in named:
        if name in instead:
            draft.leave_out(name, f"is read by the program, but is not set; {instead[name]}")
    if found := [name for name in named if name in variables]:
        draft.exports = "export " + " ".join(f'{name}="{variables[name]}"' for name in found)
        draft.leave_out(
            ", ".join(found), "are set by the command, because the program reads them; it can read TONY_… instead"
        )


def _names(text: str, name: str) -> bool:
    """Return whether the text uses the name as a variable: quoted, or in shell syntax."""
    return re.search(rf"[\"'${{]{name}\b", text) is not None


def _variable_texts(draft: Draft, folder: Path) -> Iterator[str]:
    """Yield the texts of the job's programs that exist on this machine and are readable."""
    for each in draft.files():
        for program in islice(_inside(folder / each.partition("::")[0]), _MOST_FILES):
            try:
                if program.suffix in _PROGRAMS and program.stat().st_size <= _MOST_BYTES:
                    yield program.read_text(encoding="utf-8", errors="replace")
            except (OSError, ValueError):
                continue  # the file is missing or unreadable, is not a regular file, or has an invalid name


def _inside(path: Path) -> Iterator[Path]:
    try:
        yield from path.rglob("*") if path.is_dir() else [path]
    except (OSError, ValueError):
        return
