from __future__ import annotations

from typing import cast

import pytest

from tony_provider.cluster.prepared_submission import PreparedSubmission, _secret_problems
from tony_provider.cluster.submission_attempt import SubmissionAttempt
from tony_provider.runtime.spec.model import JobSpec, TaskSpec


def test_a_delegation_token_is_in_no_log() -> None:
    prepared = cast(PreparedSubmission, None)  # is not asked
    attempt = SubmissionAttempt(prepared, "application_1_0001", token="open-sesame")
    assert "open-sesame" not in repr(attempt)
    assert "application_1_0001" in repr(attempt)


@pytest.mark.parametrize("value", ["open\0sesame", "open\ud800sesame", "open sesame" * 20_000])
def test_a_secret_that_no_environment_can_hold_is_named_and_not_shown(value: str) -> None:
    job = JobSpec(framework="standalone", tasks={"worker": TaskSpec("true")}, secrets=["KEY"])
    (problem,) = _secret_problems(job, {"KEY": value})
    assert "KEY" in problem
    assert "sesame" not in problem
    assert _secret_problems(job, {"KEY": "open sesame"}) == []
