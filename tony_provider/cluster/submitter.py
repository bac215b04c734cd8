"""One submission, from a request to a started application, or to an error that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tony_provider.cluster.history.keep_specification import Mask, specification_of
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.open_ports import tell_open_ports
from tony_provider.cluster.prepared_submission import prepare
from tony_provider.cluster.submission_attempt import SubmissionAttempt
from tony_provider.cluster.submission_builder import build_submission
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.runtime.spec.merge import merge


def submit(
    opened: OpenCluster,
    request: SubmissionRequest,
    before_submit: Callable[[str], object] | None = None,
    *,
    mask: Mask,
) -> str:
    """See ``TonyHook.submit``."""
    prepared = prepare(opened, request)
    tell_open_ports(prepared.request.job)
    application_id = opened.cluster.new_application()
    attempt = SubmissionAttempt(prepared, application_id)
    try:
        laid_over = merge(request.overrides or {}, request.advice or {})
        specification = specification_of(
            prepared.request.job, request.given, laid_over, mask, prepared.environments, prepared.kept_resources
        )
        with ThreadPoolExecutor(1, thread_name_prefix="tony-specification") as beside:
            kept = beside.submit(attempt.keep, specification)
            submission = build_submission(prepared, attempt)
            kept.result()
        attempt.hand_over(submission, before_submit)
    except BaseException:
        # Also when the task is timed out or killed meanwhile: nobody else knows of what was made.
        attempt.undo()
        raise
    return application_id
