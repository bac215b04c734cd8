"""Read a job specification as people write it: YAML, JSON or Python, with amounts in units and numbers as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

import attrs

from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.parsing.validate import validate
from tony_provider.runtime.spec.merge import merge
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.problems import NOT_GIVEN, Problem, SpecError
from tony_provider.runtime.spec.reader import Reader
from tony_provider.runtime.spec.source import load_source
from tony_provider.runtime.spec.tensorboard import with_its_task, without_its_task

Source = Union[str, bytes, Mapping[str, Any]]


def parse_job(source: Union[Source, JobSpec], *, overrides: Optional[Source] = None) -> JobSpec:
    """The job that ``source`` describes, with ``overrides`` laid over it (see ``merge``), valid as a whole.

    Raises SpecError with everything that is wrong at once. Nothing else is raised for whatever the text or mapping
    holds, and neither argument is changed. A null is the same as leaving the key out; an empty text, which is what a
    template gives for nothing, counts as null where the default is null.
    """
    plain = to_plain(without_its_task(source)) if isinstance(source, JobSpec) else load_source(source)
    try:
        if overrides is not None:
            plain = merge(plain, load_source(overrides, "overrides"))
        return _parse(plain)
    except RecursionError as error:
        raise SpecError([Problem("", NOT_GIVEN, "nested too deeply")]) from error


def _parse(plain: Mapping[str, Any]) -> JobSpec:
    reader = Reader()
    job = reader.read_job(plain)
    problems = list(reader.problems)
    unread = {problem.path for problem in problems}
    for problem in validate(job):
        # What could not be read has a stand-in, of which nothing should be said.
        if problem.path not in unread and problem.path not in reader.incomplete:
            written = reader.rendered.get(problem.path, problem.value)
            problems.append(attrs.evolve(problem, value=written))
    if problems:
        raise SpecError(problems)
    return with_its_task(job)


def partial_problems(plain: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with a part of a job: its keys, and the forms of their values. What it lacks others may give."""
    reader = Reader()
    try:
        reader.read_job(plain)
    except RecursionError:
        return [Problem("", NOT_GIVEN, "nested too deeply")]
    return [problem for problem in reader.problems if problem.value is not NOT_GIVEN]
