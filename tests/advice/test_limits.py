"""How far advice may change a job by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advice.cases import JOB
from tony_provider.advice.sizing import Limits
from tony_provider.runtime.jobspec.units import parse_memory
from tony_provider.runtime.parsing.parse import merge, parse_job

OWN = parse_job(JOB)  # 8 GiB, 4 vcores


def allowed(given: Any, **wanted: Any) -> dict[str, Any]:
    limits = Limits.parse(given)
    assert limits is not None
    found = limits.within({"tasks": {"worker": wanted, "gone": {"memory": "1GiB"}}, "start": "first-come"}, OWN)
    return found["tasks"]["worker"] if found else {}


def test_without_limits_it_is_a_quarter_to_twice_the_jobs_own() -> None:
    assert allowed(True, memory="3GiB", vcores=2) == {"memory": "3GiB", "vcores": 2}
    assert allowed(True, memory="512MiB", vcores=1) == {"memory": "2GiB", "vcores": 1}
    assert allowed(True, memory="64GiB") == {"memory": "16GiB"}
    assert allowed(True, memory="8GiB") == {}


def test_only_what_is_named_is_changed_and_within_its_limits() -> None:
    given = {"memory": {"at_least": "4GiB", "at_most": "10GiB"}}
    assert allowed(given, memory="1GiB", vcores=1) == {"memory": "4GiB"}
    assert allowed(given, memory="12GiB") == {"memory": "10GiB"}
    assert allowed({"vcores": {}}, memory="1GiB", vcores=2) == {"vcores": 2}


def test_nobody_gets_less_than_is_needed_because_of_a_limit() -> None:
    assert allowed({"memory": {"at_most": "2GiB"}}, memory="4GiB") == {}
    assert allowed({"memory": {"at_most": "2GiB"}}, memory="9GiB") == {}
    assert allowed({"memory": {"at_least": "9GiB"}}, memory="4GiB") == {}


def test_nothing_is_to_be_applied() -> None:
    assert Limits.parse(False) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "True, False, or a mapping such as"),
        ("yes", "True, False, or a mapping such as"),
        ({"vcore": {}}, "'vcore' is not known; did you mean vcores"),
        ({"memory": "1GiB"}, "apply_advice.memory is '1GiB' and should be a mapping with at_least and at_most"),
        ({"memory": {"at_last": 1}}, "'at_last' is not known; did you mean at_least"),
        ({"memory": {"at_most": "1GB"}}, "apply_advice.memory.at_most is '1GB': GB may mean"),
        ({"vcores": {"at_least": 0}}, "apply_advice.vcores.at_least is 0 and should be at least 1"),
        ({"vcores": {"at_least": 4, "at_most": 2}}, "apply_advice.vcores: at_least is more than at_most"),
    ],
)
def test_what_is_wrong_is_named(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("[", r"\[")):
        Limits.parse(given)


AMOUNTS = st.integers(1, 1 << 20)


@given(own=AMOUNTS, wanted=AMOUNTS, least=st.none() | AMOUNTS, most=st.none() | AMOUNTS)
def test_any_limits(own: int, wanted: int, least: int | None, most: int | None) -> None:
    if least is not None and most is not None and least > most:
        return
    job = parse_job(merge(JOB, {"tasks": {"worker": {"memory": own}}}))
    limits = Limits.parse({"memory": {"at_least": least, "at_most": most}})
    assert limits is not None
    found = limits.within({"tasks": {"worker": {"memory": wanted}}}, job)
    if not found:
        return
    given_memory = parse_memory(found["tasks"]["worker"]["memory"])
    assert wanted <= given_memory < own or own < given_memory <= wanted
    assert least is None or given_memory >= least or given_memory > own
    assert most is None or given_memory <= most
