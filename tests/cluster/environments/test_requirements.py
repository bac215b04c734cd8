from __future__ import annotations

from pathlib import Path

import pytest

from tony_provider.cluster.environments.built_environments import BuildFailed, BuildTarget
from tony_provider.cluster.environments.requirements import RequirementsProblem, read_requirements


def key(folder: Path, text: str, name: str = "requirements.txt") -> str:
    (folder / name).write_text(text)
    return read_requirements(folder / name).key("3.12", "linux_x86_64", [])


def test_the_key_is_of_what_counts(tmp_path: Path) -> None:
    first = key(tmp_path, "numpy==2.0 \\\n    --hash=sha256:aa\n# for the model\nsix  # small\n")
    assert key(tmp_path, "numpy==2.0 --hash=sha256:aa\n\nsix\n") == first
    assert key(tmp_path, "numpy==2.1 --hash=sha256:aa\nsix\n") != first
    found = read_requirements(tmp_path / "requirements.txt")
    assert len({found.key("3.12", "a", []), found.key("3.11", "a", []), found.key("3.12", "b", [])}) == 3


def test_included_files_count_with_their_content(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("six==1.16\n")
    first = key(tmp_path, "-r base.txt\nnumpy\n")
    assert key(tmp_path, "-c base.txt\nnumpy\n") != first
    (tmp_path / "base.txt").write_text("six==1.17\n")
    assert key(tmp_path, "-r base.txt\nnumpy\n") != first
    (tmp_path / "base.txt").write_text("-r requirements.txt\n")
    with pytest.raises(RequirementsProblem, match="includes itself"):
        read_requirements(tmp_path / "requirements.txt")


@pytest.mark.parametrize("line", ["-f wheels", "--find-links=./wheels", "--find 'wheels'"])
def test_packages_of_a_local_directory_count_with_their_content(tmp_path: Path, line: str) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "six-1.16-py3-none-any.whl").write_bytes(b"honest")
    first = key(tmp_path, f"six\n{line}\n")
    (tmp_path / "wheels" / "six-1.16-py3-none-any.whl").write_bytes(b"poison")
    assert key(tmp_path, f"six\n{line}\n") != first
    with pytest.raises(RequirementsProblem, match="-f PLACE alone on a line"):
        key(tmp_path, f"six\n--pre {line}\n")


def test_what_another_file_says_is_found_as_pip_finds_it(tmp_path: Path) -> None:
    (tmp_path / "my base.txt").write_text("six==1.16\n")
    first = key(tmp_path, "\ufeff-r 'my base.txt'\n")
    (tmp_path / "my base.txt").write_text("six==1.17\n")
    assert key(tmp_path, "\ufeff-r 'my base.txt'\n") != first
    with pytest.raises(RequirementsProblem, match="download it"):
        key(tmp_path, "-c https://example.com/constraints.txt\nsix\n")


def test_a_comment_ends_with_its_line(tmp_path: Path) -> None:
    first = key(tmp_path, "six\n# torch==1.13 \\\ntorch==2.0\n")
    assert key(tmp_path, "six\n# torch==1.13 \\\ntorch==2.1\n") != first
    assert key(tmp_path, "six\ntorch==2.0\n") == first


@pytest.mark.parametrize(
    "line",
    [
        *("-e .", "--editable=lib", ".", ".[train]", "./lib", "../lib/x", "/opt/lib", "lib/x", "lib/x[train]"),
        *("lib @ file:///x", "lib @ ./x", "file:///x", "a.whl", "lib/a.tar.gz", "a.whl ; python_version > '3.8'"),
    ],
)
def test_code_of_this_machine_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(RequirementsProblem, match="is on this machine"):
        key(tmp_path, f"numpy\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        *("--pre -r deps.txt", "--pre --requirement=deps.txt", "--requiremen deps.txt", "--pre -cdeps.txt"),
        *("--pre --constr deps.txt", "--pre -r https://example.com/deps.txt"),
    ],
)
def test_files_that_pip_would_read_without_being_part_of_the_key_are_refused(tmp_path: Path, line: str) -> None:
    """Seen: two contents of such a file had one key, so the second build returned the first one's environment."""
    (tmp_path / "deps.txt").write_text("attrs==1\n")
    with pytest.raises(RequirementsProblem, match="includes files by"):
        key(tmp_path, f"six\n{line}\n")


@pytest.mark.parametrize(
    "line", ["--pre", "--find-links https://example.com/w", "--require-hashes", "-i https://e.com"]
)
def test_other_options_are_taken(tmp_path: Path, line: str) -> None:
    assert key(tmp_path, f"six\n{line}\n") != key(tmp_path, "six\n")


def test_what_uv_writes_of_a_project_is_told(tmp_path: Path) -> None:
    with pytest.raises(RequirementsProblem, match=r"'-e \.' is on this machine.*--no-emit-project"):
        key(tmp_path, "#    uv export --format requirements.txt\n-e .\nsix==1.16.0 \\\n    --hash=sha256:aa\n")


def test_a_checkout_is_named_by_its_url_alone(tmp_path: Path) -> None:
    with pytest.raises(RequirementsProblem, match="write NAME @ URL"):
        key(tmp_path, "-e git+https://example.com/lib.git@v1#egg=lib\n")


def test_a_lock_has_no_directories_of_this_machine(tmp_path: Path) -> None:
    package = "[[packages]]\nname = 'six'\nversion = '1.16.0'\n"
    assert key(tmp_path, package, "pylock.toml")
    with pytest.raises(RequirementsProblem, match=r"mine is on this machine.*--no-emit-project"):
        key(tmp_path, f"{package}[[packages]]\nname = 'mine'\ndirectory = {{path = '.'}}\n", "pylock.toml")
    with pytest.raises(RequirementsProblem, match="cannot be read"):
        key(tmp_path, "[[packages", "pylock.toml")


@pytest.mark.parametrize(
    "line",
    [
        *("x @ https://example.com/x-1.whl", "--index-url https://example.com/simple", "--find-links=wheels/"),
        *(
            "torch[cuda]>=2; python_version>'3'",
            "x@git+ssh://git@example.com/x.git@v1",
            "zope.zip>=1",
            "https://e.com/x/",
        ),
    ],
)
def test_what_an_index_has_is_not(tmp_path: Path, line: str) -> None:
    assert key(tmp_path, f"{line}\n")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(RequirementsProblem, match="contains no requirement"):
        key(tmp_path, "# nothing\n")
    with pytest.raises(RequirementsProblem, match="uv export"):
        key(tmp_path, "version = 1", "uv.lock")
    with pytest.raises(RequirementsProblem, match="conda-pack"):
        key(tmp_path, "name: train", "environment.yml")
    with pytest.raises(RequirementsProblem, match="cannot be read"):
        read_requirements(tmp_path / "gone.txt")


def test_platforms() -> None:
    assert BuildTarget.of(None, None).glibc is None
    assert BuildTarget.of((3, 99), None).glibc == 28
    assert BuildTarget.of((3, 9), "manylinux_2_17_aarch64") == BuildTarget((3, 9), "aarch64", 17)
    names = list(BuildTarget((3, 9), "x86_64", 17).pip_platforms)
    assert names[:2] == ["manylinux_2_17_x86_64", "manylinux2014_x86_64"]
    assert names[-1] == "manylinux1_x86_64"
    with pytest.raises(BuildFailed, match="--platform: 'win32' is not supported"):
        BuildTarget.of(None, "win32")
