"""What travels of a function, and why some cannot."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG, task

from tony_provider.decorators.function_call import encode_call
from tony_provider.decorators.task_tony import TrainingFunction
from tony_provider.exceptions import TonySpecError

if TYPE_CHECKING:
    from decimal import Decimal

STEPS = 100
made: int


def helper() -> int:
    return STEPS


def compact(rate: float, steps: int = 3) -> float:
    # Kept, as is the end of the next line.
    text = "# no comment"  # one
    return rate * steps * len(text)


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As a module of its own."""
    sent = TrainingFunction.of(function)
    module = sys.modules["tony_function"] = ModuleType("tony_function")
    try:
        exec(compile(sent.text, "tony_function.py", "exec"), vars(module))
        return vars(module)[sent.name](*args, **kwargs)
    finally:
        del sys.modules["tony_function"]


def refusal(function: Callable[..., Any]) -> str:
    with pytest.raises(TonySpecError) as caught:
        TrainingFunction.of(function)
    return str(caught.value)


def test_a_function_travels_as_it_is_written() -> None:
    sent = TrainingFunction.of(compact)
    assert '    # Kept, as is the end of the next line.\n    text = "# no comment"  # one\n' in sent.text
    assert sent.text.startswith("# The function compact of test_function.py,")
    assert run(compact, 2.0) == compact(2.0)


def test_a_function_that_was_given_another_name_travels_by_its_own() -> None:
    def renamed() -> int:
        return 5

    renamed.__name__ = "other"
    assert TrainingFunction.of(renamed).name == "renamed"
    assert run(renamed) == 5
    assert json.loads(encode_call(renamed, [], {}))["function"] == "renamed"


def test_its_lines_can_be_found_in_the_dag_file() -> None:
    for function in (compact, indented()):
        sent = TrainingFunction.of(function)
        lines, original = sent.text.splitlines(), Path(__file__).read_text().splitlines()
        for number, line in enumerate(lines, 1):
            if number > lines.index(next(each for each in lines if "def " in each)):
                assert line == original[number + sent.offset - 1]


def indented() -> Callable[..., Any]:
    if STEPS:

        @no_change(1, (2, "):"), key=lambda: 3)
        @no_change()
        def train(
            day: datetime,
            rate: Decimal = "0.5",  # type: ignore[assignment]
        ) -> dict[str, Any]:
            """Texts of several lines stay what they are."""
            words = """
        less
          more"""
            return {"words": words, "day": day, "rate": rate}

    return train


def no_change(*_: Any, **__: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: function


def test_an_indented_one_with_decorators_and_annotations_travels() -> None:
    assert run(indented(), 1) == {"words": "\n        less\n          more", "day": 1, "rate": "0.5"}
    assert "no_change" not in TrainingFunction.of(indented()).text


def test_other_lines_of_the_dag_file_change_nothing(tmp_path: Path) -> None:
    texts = []
    for before in ("", "import os\n\n\n"):
        file = tmp_path / "dag.py"
        file.write_text(f"{before}def train():\n    return 1\n\nOTHER = {len(before)}\n")
        namespace: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), namespace)
        texts.append(TrainingFunction.of(namespace["train"]).text)
    assert texts[0] == texts[1]


def test_what_a_function_makes_itself_is_its_own() -> None:
    def train(count: int) -> Any:
        import json as js
        import os.path
        from dataclasses import dataclass, field

        global made

        @dataclass
        class Point:
            x: int = 0
            tags: list[Decimal] = field(default_factory=list)

            def moved(self, by: int) -> Point:
                return Point(self.x + by + made)

        def inner(n: int) -> int:
            nonlocal count
            count += n
            return train(0) if n < 0 else count

        made = 1
        squares = [n * n for n in range(count) if (m := n) >= 0]
        try:
            int(__name__)
        except ValueError as error:
            said = str(error)
        return js.loads(js.dumps([Point(1).moved(2).x, inner(3), squares, m, said[-15:], os.path.sep]))

    assert run(train, 3) == [4, 6, [0, 1, 4], 2, "'tony_function'", "/"]


def test_names_of_the_dag_file_are_refused_each_by_its_name() -> None:
    def train(steps: int = STEPS) -> Any:
        def inner() -> Any:
            return [json.dumps(sqrt(helper())) for _ in range(steps)]

        class Model(dict):  # type: ignore[type-arg]
            size = STEPS

        return inner(), Model, nowhere, math.pi, TrainingFunction  # type: ignore[name-defined]  # noqa: F821

    told = refusal(train)
    for line in (
        "STEPS is a value of the DAG file (int); make it an argument, or assign it inside",
        "TrainingFunction is imported from tony_provider.decorators.task_tony; import it inside",
        "helper is defined in the DAG file; define it inside, or in a file of the job that is imported inside",
        "json is the module json; import it inside",
        "math is the module math; import it inside",
        "nowhere is not defined; import or assign it inside",
        "sqrt is imported from math; import it inside",
    ):
        assert f"\n  - {line}" in told
    assert told.count("\n") == 7
    assert "train (test_function.py, line " in told


def test_a_closure_is_refused_by_its_name() -> None:
    rate = 0.5

    def train() -> float:
        def inner() -> float:
            return rate

        return inner()

    assert "rate belongs to the function that contains train; make it an argument" in refusal(train)


def test_a_built_in_name_that_the_dag_file_gives_another_meaning_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text("sum = 3\ndef train():\n    return sum, max, __name__\n")
    namespace: dict[str, Any] = {"__name__": "dag"}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    assert refusal(namespace["train"]).count("\n  - ") == 1


def test_what_airflow_would_give_is_refused() -> None:
    def train(ti: Any, rate: float, params: Any = None, **context: Any) -> None: ...

    told = refusal(train)
    for name in ("parameter ti", "parameter params", r"**context"):
        assert name in told
    assert "rate" not in told


class Model:
    def train(self) -> None: ...

    def __call__(self) -> None: ...


async def asynchronous() -> None: ...


async def many() -> AsyncIterator[int]:
    yield 1


def yielding() -> Iterator[int]:
    yield 1


@functools.lru_cache
def cached() -> None: ...


@functools.wraps(compact)
def wrapping(*_: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: 1, "a lambda"),
        (functools.partial(compact, 1), "is a partial"),
        (Model().train, "is a method"),
        (Model(), "is a Model"),
        (len, "builtin_function_or_method"),
        (asynchronous, "asynchronous is asynchronous"),
        (many, "many is asynchronous"),
        (yielding, "yielding is a generator"),
        (cached, "lru_cache"),
        (wrapping, "another decorator"),
    ],
)
def test_what_is_no_plain_function_is_refused(function: Callable[..., Any], words: str) -> None:
    assert words in refusal(function)


def test_a_function_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {}
    exec("def train():\n    return 1\n", namespace)
    assert "cannot read the function's source" in refusal(namespace["train"])


def test_a_file_that_has_changed_since_is_no_source(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text("def train():\n    return 1\n")
    namespace: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    file.write_text("def other():\n    return 1\n")
    assert "was the file changed?" in refusal(namespace["train"])


def test_a_mapped_one_is_refused_when_the_dag_is_parsed() -> None:
    with DAG("parsing", schedule=None), pytest.raises(TonySpecError, match="STEPS"):

        @task.tony(job={"framework": "standalone", "tasks": {"worker": {}}})
        def train(rate: float) -> float:
            return rate * STEPS


def test_asyncio_can_be_used_inside() -> None:
    def train() -> int:
        import asyncio

        async def work() -> int:
            return 3

        return asyncio.run(work())

    assert run(train) == 3
    assert asyncio.iscoroutinefunction(asynchronous)
