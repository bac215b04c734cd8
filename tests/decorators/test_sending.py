"""What a decorated function adds to its job, and how its arguments travel."""

from __future__ import annotations

import json
from collections import UserDict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.decorators.function_call import encode_call, function_command_patch
from tony_provider.exceptions import TonySpecError
from tony_provider.runtime.parsing.parse import load_source, merge, parse_job
from tony_provider.runtime.sdk import tony_call

JOB = {"framework": "standalone", "tasks": {"worker": {"instances": 2}, "tensorboard": {"command": "true"}}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=20,
)


def train(*args: Any, rate: Any = 0.5, other: Any = None) -> None: ...


def called(*args: Any, **kwargs: Any) -> dict[str, Any]:
    found = json.loads(encode_call(train, args, kwargs))
    assert isinstance(found, dict)
    return found


@given(st.lists(JSON, max_size=3), JSON)
def test_json_arrives_as_it_was(args: list[Any], rate: Any) -> None:
    assert called(*args, rate=rate) == {"function": "train", "args": args, "kwargs": {"rate": rate}}


def test_the_same_call_is_the_same_bytes() -> None:
    def train(rate: float, steps: int = 1) -> None: ...

    ways = [
        encode_call(train, [0.5, 3], {}),
        encode_call(train, [0.5], {"steps": 3}),
        encode_call(train, [], {"steps": 3, "rate": 0.5}),
    ]
    assert len(set(ways)) == 1
    assert encode_call(train, [0.5], {}) != ways[0]


def test_what_is_nearly_json_becomes_it() -> None:
    given = {"pair": (1, 2), "number": np.float32(0.5), "range": range(2), "mapping": UserDict(a=np.int64(3))}
    assert called(rate=given)["kwargs"]["rate"] == {"pair": [1, 2], "number": 0.5, "range": [0, 1], "mapping": {"a": 3}}


def around(value: Any) -> list[Any]:
    value.append(value)
    return list(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"data": [0, 1, {2}]}, "rate['data'][2] is of type set, which"),
        ([{"when": datetime(2026, 1, 1, tzinfo=UTC)}], "rate[0]['when'] is of type datetime.datetime"),
        (Path("/x"), "rate is of type pathlib.PosixPath"),
        (b"x", "rate is of type bytes"),
        ({"a": {3: 4}}, "rate['a'] has the key 3, of type int"),
        (np.zeros(2), "rate is of type numpy.ndarray"),
        (around([1]), "rate is nested too deeply"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(TonySpecError) as caught:
        called(rate=value, other=object())
    assert words in str(caught.value)
    assert "other is of type object" in str(caught.value)


def test_arguments_that_the_function_does_not_take_are_refused() -> None:
    with pytest.raises(TonySpecError, match=r"train\(\) cannot be called with these arguments: .*'wrong'"):
        called(wrong=1)


def test_every_type_without_a_command_calls_the_function() -> None:
    job = parse_job(JOB, overrides=function_command_patch(JOB, "train"))
    assert {name: task.command for name, task in job.tasks.items()} == {
        "worker": tony_call.COMMAND,
        "tensorboard": "true",
    }
    assert job.restart.permanent_exit_codes == [tony_call.REFUSED]


def test_what_a_framework_runs_by_itself_does_not_call_the_function() -> None:
    ray = {
        "framework": "ray",
        "tasks": {"chief": {}, "worker": {}, "helper": {"role": "worker"}, "watch": {"role": "sidecar"}},
    }
    job = parse_job(ray, overrides=function_command_patch(ray, "train"))
    assert {name for name, task in job.tasks.items() if task.command == tony_call.COMMAND} == {"chief", "watch"}


def test_what_is_laid_over_a_job_says_which_types_there_are() -> None:
    over = "{tasks: {worker: {command: 'true'}, tensorboard: null, chief: {}}, restart: {permanent_exit_codes: [3]}}"
    whole = merge(JOB, load_source(over))
    job = parse_job(whole, overrides=function_command_patch(whole, "train"))
    assert {name: task.command for name, task in job.tasks.items()} == {"worker": "true", "chief": tony_call.COMMAND}
    assert job.restart.permanent_exit_codes == [3, tony_call.REFUSED]
    again = merge(JOB, {"tasks": {"tensorboard": {"command": None}}})
    assert (
        parse_job(again, overrides=function_command_patch(again, "train")).tasks["tensorboard"].command
        == tony_call.COMMAND
    )


def test_a_job_that_would_not_call_the_function_is_refused() -> None:
    with pytest.raises(TonySpecError, match=r"every type has a command \(worker, tensorboard\).* call train\(\)"):
        function_command_patch(merge(JOB, {"tasks": {"worker": {"command": "true"}}}), "train")


@pytest.mark.parametrize("tasks", [None, [], "x", {}, {"worker": "x"}, {"worker": {}, "x": 3}])
@pytest.mark.parametrize("restart", ["x", {"permanent_exit_codes": "x"}])
def test_what_is_wrong_with_a_job_is_left_to_who_reads_it(tasks: Any, restart: Any) -> None:
    over = function_command_patch({"framework": "standalone", "tasks": tasks, "restart": restart}, "train")
    assert load_source(over).get("restart") is None
