"""What overrides may touch."""

from __future__ import annotations

import tracemalloc
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.jobspec import model
from tony_provider.runtime.jobspec.problems import SpecError, leaf_keys
from tony_provider.runtime.parsing.parse import (
    ALLOWED_BY_DEFAULT,
    EVERYTHING,
    check_overrides,
    load_source,
    merge,
    parse_job,
)

JOB = {"framework": "standalone", "tasks": {"worker": {"command": "python train.py"}}}
SIZES = {
    "name": "tuned",
    "queue": "ml",
    "priority": 3,
    "am": {"memory": "1GiB"},
    "timeouts": {"lifetime": "1d", "queue": None},
    "restart": {"budget": 5, "memory_step": "1GiB"},
    "checkpoint": {"keep": 5},
    "tasks": {"worker": {"instances": "4", "memory": "8GiB", "vcores": 2, "gpus": 1, "min_instances": 2}},
}
# What makes another job of it: what runs, with what, as whom, where to, how its end is told.
NEVER = {
    *("framework", "files", "archives", "python_env", "docker", "env", "secrets", "hadoop", "inputs", "outputs"),
    *("success", "start", "tolerated_failures", "tags", "node_label", "port_range", "preset", "network", "acls"),
    "windows",  # whose hours others count on
    "preflight",
}
NO_SIZES = ["command", "env", "secrets", "role", "after", "ready", "restart", "decides", "resources", "node_label"]


def refused(overrides: dict[str, Any], *allowed: str) -> list[str]:
    try:
        check_overrides(overrides, JOB, allowed)
    except SpecError as error:
        return [problem.path for problem in error.problems]
    return []


def test_sizes_and_limits_are_for_everybody() -> None:
    assert refused(SIZES) == []


@pytest.mark.parametrize("key", sorted(NEVER))
@pytest.mark.parametrize("value", [None, "x", {}, {"x": "y"}, ["x"]])
def test_what_makes_another_job_of_it_is_not(key: str, value: Any) -> None:
    found = refused({key: value})
    assert found == [key + (".x" if isinstance(value, dict) and value else "")]


def test_every_key_of_a_job_was_thought_of() -> None:
    """A new key is not allowed until it stands in the table; here somebody says which of both it is meant to be."""
    allowed = {pattern.split(".")[0] for pattern in ALLOWED_BY_DEFAULT}
    assert allowed | NEVER == set(attrs.fields_dict(model.JobSpec))
    assert allowed & NEVER == set()


@pytest.mark.parametrize(
    "key", ["command", "env", "secrets", "role", "after", "ready", "restart", "decides", "resources"]
)
def test_keys_of_a_task_type_that_are_no_sizes(key: str) -> None:
    assert refused({"tasks": {"worker": {key: "x"}}}) == [f"tasks.worker.{key}"]


def test_all_that_is_refused_is_told_at_once_with_what_to_do() -> None:
    with pytest.raises(SpecError) as raised:
        check_overrides({"files": ["/etc/krb5.keytab"], "tasks": {"worker": {"command": "id", "memory": "1GiB"}}}, JOB)
    text = str(raised.value)
    assert "2 problems" in text
    assert 'allowed_overrides=["files"]' in text
    assert "(got ['/etc/krb5.keytab'])" in text
    assert 'allowed_overrides=["tasks.worker.command"]' in text
    assert "tasks.worker.memory" not in text


def test_sizes_make_no_task_type() -> None:
    """A type without a command may have one all the same: that of the framework, or the function of @task.tony."""
    assert refused({"tasks": {"prepare": {"instances": 5, "memory": "1GiB"}}}) == ["tasks.prepare"]
    assert refused({"tasks": {"worker": None}}) == ["tasks.worker"]
    assert refused({"tasks": None}) == ["tasks"]
    assert refused({"tasks": []}) == ["tasks"]
    assert refused({"tasks": {"prepare": {"instances": 5}}}, "tasks.prepare") == []


@pytest.mark.parametrize(
    ("pattern", "overrides", "expected"),
    [
        ("env.LR", {"env": {"LR": "1"}}, []),
        ("env.LR", {"env": {"LR": "1", "LD_PRELOAD": "x"}}, ["env.LD_PRELOAD"]),
        ("env.LR", {"env": None}, ["env"]),
        ("env.LR", {"env": {}}, ["env"]),
        ("env.LR_*", {"env": {"LR_1": "1", "XLR_1": "1"}}, ["env.XLR_1"]),
        ("env", {"env": {"LR": "1"}}, []),
        ("tasks.*.env.LR", {"tasks": {"worker": {"env": {"LR": "1"}}}}, []),
        ("tasks.*.env.LR", {"env": {"LR": "1"}}, ["env.LR"]),
        ("tasks.ps.env", {"tasks": {"worker": {"env": {"LR": "1"}}}}, ["tasks.worker.env.LR"]),
        ("files", {"files": ["x"]}, []),
        ("*", {"files": ["x"], "tasks": {"new": {"command": "x"}}}, []),
        ("docker.image", {"docker": {"image": "x", "mounts": []}}, ["docker.mounts"]),
        # A dot in a name is none of the pattern's.
        ("env.A.B", {"env": {"A.B": "x"}}, ["env['A.B']"]),
    ],
)
def test_patterns(pattern: str, overrides: dict[str, Any], expected: list[str]) -> None:
    assert refused(overrides, pattern) == expected


PLAIN = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["tasks", "worker", "env", "am", "memory", "command", "x"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["tasks", "env", "am", "files", "queue"]), PLAIN))
def test_whatever_is_not_refused_changes_keys_of_the_table_only(overrides: dict[str, Any]) -> None:
    if refused(overrides):
        return
    before, after = dict(leaf_keys(JOB)), dict(leaf_keys(merge(JOB, overrides)))
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert all(path[0] in ("queue", "am", "tasks") for path in changed)
    assert ("tasks", "worker", "command") not in changed
    assert merge(JOB, overrides).get("tasks", {}).keys() == JOB["tasks"].keys()  # type: ignore[attr-defined]


def test_what_is_nested_too_deeply_is_said() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"env": deep}
    with pytest.raises(SpecError, match="nested too deeply"):
        check_overrides(deep, JOB, EVERYTHING)


@pytest.mark.parametrize("last", ["env: *a39", "tasks: {another: *a39}"])
def test_a_few_lines_that_stand_for_billions_of_keys_are_refused_at_once(last: str) -> None:
    lines = ["a0: &a0 {x: y}", *(f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}}}" for n in range(1, 40)), last]
    with pytest.raises(SpecError, match="more than 10000 keys"):
        check_overrides(load_source("\n".join(lines)), JOB, EVERYTHING)


@pytest.mark.parametrize(
    "overrides",
    [
        {"queue": ["x"] * 10_001},
        {"am": {"memory": [[["x"] * 100] * 100]}},
        {"tasks": {"worker": {"instances": [{"a": 1}] * 5001}}},
    ],
)
def test_elements_of_lists_count_as_keys_do(overrides: dict[str, Any]) -> None:
    """Seen: a list of half a million made an error of 57 MB, a line for each of its elements."""
    with pytest.raises(SpecError, match="more than 10000 keys and list elements") as raised:
        check_overrides(overrides, JOB, EVERYTHING)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    "overrides",
    [
        {f"key-{number}": "x" * 10_000 for number in range(9000)},
        {"k" * 1_000_000: {str(number): number for number in range(9000)}},
        {"env": {"n" * 5_000_000: ["x" * 5_000_000]}},
    ],
)
def test_however_much_is_refused_the_error_can_be_read(overrides: dict[str, Any]) -> None:
    tracemalloc.start()
    with pytest.raises(SpecError) as raised:
        check_overrides(overrides, JOB)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(str(raised.value)) < 150_000
    assert most < 100 << 20
    if len(overrides) == 9000:
        assert "8901 more keys may not be overridden" in str(raised.value)


def test_the_error_of_a_long_list_can_be_read() -> None:
    with pytest.raises(SpecError) as raised:
        parse_job({**JOB, "files": [{}] * 5000})
    assert len(raised.value.problems) >= 5000
    assert len(str(raised.value)) < 150_000
    assert "more" in str(raised.value).splitlines()[-1]
