"""Frameworks that other packages bring, by entry points."""

from __future__ import annotations

import pytest

from tests.runtime.frameworks.installed import GOOD, Install, install
from tony_provider.runtime.frameworks.base import UnknownFrameworkError, framework_names, get_framework
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job

__all__ = ["install"]


def test_one_is_found_by_its_entry_point(install: Install) -> None:
    install(GOOD, "mine = my_frameworks:Mine")
    assert "mine" in framework_names()
    assert get_framework("mine").name == "mine"
    assert parse_job({"framework": "mine", "tasks": {"worker": {"command": "true"}}}).framework == "mine"


@pytest.mark.parametrize(
    ("text", "entry_point", "message"),
    [
        ("import there_is_no_such_module", "mine = my_frameworks:Mine", "there_is_no_such_module"),
        (GOOD, "mine = my_frameworks:Yours", "Yours"),
        (GOOD, "mine = my_frameworks:TaskEnvironment", "cannot be loaded"),
        ("Mine = dict", "mine = my_frameworks:Mine", "is no Framework"),
    ],
)
def test_one_that_cannot_be_loaded_is_the_job_s_error(
    install: Install, text: str, entry_point: str, message: str
) -> None:
    install(text, entry_point)
    with pytest.raises(SpecError, match=message) as raised:
        parse_job({"framework": "mine", "tasks": {"worker": {"command": "true"}}})
    assert [problem.path for problem in raised.value.problems] == ["framework"]


def test_ours_keep_their_names(install: Install) -> None:
    install(GOOD, "tensorflow = my_frameworks:Mine")
    assert type(get_framework("tensorflow")).__module__.startswith("tony_provider.")


def test_the_error_for_an_unknown_one_says_how_to_add_it() -> None:
    with pytest.raises(
        SpecError, match=r"must be one of tensorflow.*entry point in the group tony_provider.frameworks"
    ):
        parse_job({"framework": "caffe", "tasks": {"worker": {"command": "true"}}})


@pytest.mark.parametrize("name", ["base", "collective", "tensorflow.TensorFlow", "os", ""])
def test_a_name_loads_no_other_module(name: str) -> None:
    with pytest.raises(UnknownFrameworkError, match="no framework"):
        get_framework(name)
