"""How a summary is kept: in two parts, since lists of thousands of jobs need only the first; and how it is read back.

What is read may be damaged, of another release, or written by anybody's task: it is taken as far as it goes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.runtime.codec import CodecError, from_plain, to_plain

# Keys in the state of a task instance; an application's id follows the first two.
JOB_KEY = "tony_job:"
DETAILS_KEY = "tony_job_details:"
JOBS_KEY = "tony_jobs"  # the ids of the applications whose summaries are kept, oldest first
DETAILS = ("curves", "advice", "fingerprint", "links")  # fields of the second part

Plain = dict[str, Any]


def in_parts(summary: JobSummary) -> tuple[Plain, Plain]:
    """The summary as JSON types, in its two parts: what lists need, and the rest."""
    plain = to_plain(summary)
    details = {name: plain.pop(name) for name in DETAILS}
    return plain, details


def plain_of(text: str | None) -> tuple[Plain, list[str]]:
    """The object in a stored text, and what is wrong with it; empty when it is none."""
    if text is None:
        return {}, ["a part of the summary is not there"]
    if not text:  # and so what the database keeps to itself
        return {}, ["the summary is damaged: it is empty, or longer than any of ours"]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, [f"the summary is damaged: {error}"]
    if not isinstance(found, dict):
        return {}, ["the summary is damaged: it is no JSON object"]
    if len(found) == 1 and next(iter(found)).startswith("__"):  # Airflow's mark for what a backend keeps elsewhere
        return {}, ["the summary is kept by a backend of Airflow's state store, and not in its database"]
    return found, []


def read_summary(plain: Mapping[str, Any]) -> tuple[JobSummary, list[str]]:
    """The summary in ``plain``, which has the fields without a default in any case, and what could not be read."""
    try:
        return from_plain(plain, JobSummary), []
    except CodecError:
        return _field_by_field(plain)


def _field_by_field(plain: Mapping[str, Any]) -> tuple[JobSummary, list[str]]:
    fields = attrs.fields(JobSummary)
    good = {field.name: plain[field.name] for field in fields if field.default is attrs.NOTHING}
    problems: list[str] = []
    for field in fields:
        if field.name in plain and field.name not in good:
            try:
                from_plain({**good, field.name: plain[field.name]}, JobSummary)
            except CodecError as error:
                problems += error.problems
            else:
                good[field.name] = plain[field.name]
    return from_plain(good, JobSummary), problems
