"""What breaks a rule of the project is found. `make lint` applies the rules to the project."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.structure import budget, checks, language
from tests.structure.source import Module, imports

Check = Callable[[], list[str]]


def of(**sources: str) -> dict[str, Module]:
    return {name: Module(name, Path(f"{name}.py"), ast.parse(source)) for name, source in sources.items()}


def broken(check: Check, monkeypatch: pytest.MonkeyPatch, found: dict[str, Module]) -> list[str]:
    monkeypatch.setattr(checks, "modules", lambda _: found)
    return check()


def test_classes_that_share_a_name_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(a="class Ending: pass\nclass _Own: pass", b="\nclass Ending: pass\nclass _Own: pass")
    assert broken(checks.class_names, monkeypatch, found) == ["Ending is the name of two classes: a.py:1, b.py:2"]


def test_a_class_without_a_docstring_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(a='class Said:\n    """It is."""\nclass Mute: pass\nclass _Own: pass')
    assert broken(checks.class_docstrings, monkeypatch, found) == ["a.py:3: Mute has no docstring"]


def test_what_is_taken_from_a_module_counts_as_the_module() -> None:
    found = {**of(p=""), "p.q": of(q="")["q"], "r": of(r="from p import q, other\nimport os")["r"]}
    assert imports(found)["r"] == {"p.q", "p"}


@pytest.mark.parametrize(
    "statement", ["task.state = 1", "self.phase: int = 1", "a, state.phase = 1, 2", "a.b.state += 1"]
)
def test_who_writes_a_state_past_the_lifecycle_is_found(monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    written = Module(f"{checks.SESSION}.gang", Path("gang.py"), ast.parse(statement))
    other = Module("elsewhere", Path("elsewhere.py"), ast.parse(statement))
    own = Module(checks.LIFECYCLE, Path("lifecycle.py"), ast.parse(statement))
    found = {module.name: module for module in (written, other, own)}
    assert [line.partition(":")[0] for line in broken(checks.state_writers, monkeypatch, found)] == ["gang.py"]


def test_the_state_of_the_whole_session_is_made_where_the_session_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Module(f"{checks.SESSION}.session", Path("session.py"), ast.parse("self.state = SessionState(job)"))
    assert broken(checks.state_writers, monkeypatch, {made.name: made}) == []


def test_another_package_in_the_tests_hadoop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "tests.hadoop.java": "import os.path\nfrom tests.hadoop.ports import free\nimport pytest\nimport attrs",
        "tests.hadoop.fixtures": "import pytest",
    }
    found = {name: Module(name, Path(f"{name}.py"), ast.parse(source)) for name, source in sources.items()}
    lines = broken(checks.hadoop_imports, monkeypatch, found)
    assert lines == ["tests.hadoop.java.py: imports pytest", "tests.hadoop.java.py: imports attrs"]


def test_the_measures() -> None:
    wide = "class A:\n    def __init__(self, a, b, c, d, e, f, *, g): pass"
    found = {**of(a="from b import x", c=wide, d=""), "e.a": Module("e.a", Path("e/a.py"), ast.parse("y = 1"))}
    found["b"] = Module("b", Path("b.py"), ast.parse("x = 1"))
    assert budget.measure(found) == budget.Size(files=5, nodes=10, small_files=1, wide_constructors=1, shared_names=1)


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("What a job costs is in its history.", "a clause as subject"),
        ("None: there is no limit of it.", "no head noun"),
        ("The lock of somebody else is kept.", "an actor without a name"),
        ("The session is told of each failure.", "speech of programs"),
        ("The upload goes on after a restart.", "dialect"),
    ],
)
def test_a_sentence_that_is_hard_to_read_is_found(sentence: str, fault: str) -> None:
    assert language.faults(sentence) == [fault]


def test_a_plain_sentence_breaks_no_rule() -> None:
    assert language.faults("Return the seconds until the token ends.") == []


def test_each_trailing_comment_is_a_text() -> None:
    text = "Stop the process.\n\nWait for ``seconds`` and send the second signal. Raises OSError if it is gone."
    assert language.sentences(text) == ["Wait for CODE and send the second signal.", "Raises OSError if it is gone."]
