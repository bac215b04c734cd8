"""What of a directory is taken along: what git would take, with a last word of our own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tony_provider.cluster.sources import IgnoreFileError, files_below

NAMES = ("a", "b.py", "log", "x.log", "deep")
PATHS = [
    *NAMES,
    *(f"{above}/{name}" for above in ("src", "data") for name in NAMES),
    *(f"src/in/{name}" for name in ("b.py", "x.log")),
]
PATTERNS = [
    *("*.log", "!x.log", "/a", "src/", "in/", "**/in", "data/*", "!data/a", "src/**/x.log", "# no", "", "b.py "),
    *("/data/deep", "lo?", "[ab]", "!*.py", "**/*.py", "src/in/*", "!src/in/b.py", "\\!x"),
]
OF_DIRECTORIES = ["*", "!*/", "src/**", "!src/**/", "!src/in", "data/**", "!/data/"]
RULES = st.lists(st.sampled_from(PATTERNS), max_size=5).map("\n".join)
RULES_OF_ALL = st.lists(st.sampled_from([*PATTERNS, *OF_DIRECTORIES]), max_size=5).map("\n".join)


def taken(folder: Path) -> list[str]:
    return sorted(each.relative_to(folder).as_posix() for each in files_below(folder, []))


def plant(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@settings(max_examples=40, deadline=None)
@given(RULES_OF_ALL, RULES)
def test_it_is_what_git_would_take(of_all: str, of_src: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plant(folder, {**dict.fromkeys(PATHS, ""), ".gitignore": of_all, "src/.gitignore": of_src})
        environ = {"PATH": os.environ["PATH"], "HOME": name, "GIT_CONFIG_NOSYSTEM": "1"}
        for command in (["git", "init", "--quiet"], ["git", "ls-files", "--others", "--exclude-standard"]):
            done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True)
        assert taken(folder) == sorted(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ("*\n!*/\n!*.py\n", ["src/in/b.py", "train.py"]),
        ("src/**\n!src/**/\n!src/in/*.py\n", ["src/in/b.py", "train.py"]),
        ("src/**\n!src/keep.bin\n", ["src/keep.bin", "train.py"]),
        ("src/\n!src/keep.bin\n", ["train.py"]),
    ],
)
def test_what_is_to_be_kept_of_what_is_ignored(tmp_path: Path, rules: str, kept: list[str]) -> None:
    plant(tmp_path, dict.fromkeys(("train.py", "src/in/b.py", "src/in/x.bin", "src/keep.bin"), ""))
    plant(tmp_path, {".gitignore": f"{rules}.gitignore\n"})
    assert taken(tmp_path) == kept


def test_lines_end_as_git_has_it(tmp_path: Path) -> None:
    plant(tmp_path, dict.fromkeys(("x.log", "b.tmp", "train.py"), ""))
    plant(tmp_path, {".gitignore": "\ufeffx.log\r\nb\x0ctrain.py\n*.tmp\n.*\n"})
    assert taken(tmp_path) == ["train.py"]


def test_links_that_lead_to_each_other_are_not_followed_for_ever(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        plant(tmp_path, {f"{name}/own.py": ""})
        for number in range(3):
            (tmp_path / name / f"link{number}").symlink_to(f"../{other}")
    links = [f"{number}" for number in range(3)]
    assert taken(tmp_path / "a") == sorted(
        [
            "own.py",
            *(f"link{number}/own.py" for number in links),
            *(f"link{number}/link{other}" for number in links for other in links),
        ]
    )


def test_our_own_ignore_file_has_the_last_word(tmp_path: Path) -> None:
    plant(tmp_path, dict.fromkeys(("train.py", "weights.npz", "notes.md", "deep/weights.npz"), ""))
    plant(tmp_path, {".gitignore": "*.npz\n", ".tonyignore": "*.md\n!weights.npz\n.*ignore\n"})
    assert taken(tmp_path) == ["deep/weights.npz", "train.py", "weights.npz"]


def test_directories_above_are_not_asked(tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "*\n", "src/train.py": ""})
    assert taken(tmp_path / "src") == ["train.py"]


def test_a_rule_that_is_none(tmp_path: Path) -> None:
    plant(tmp_path, {".tonyignore": "!\n"})
    with pytest.raises(IgnoreFileError, match=r"\.tonyignore cannot be used: Invalid"):
        taken(tmp_path)
