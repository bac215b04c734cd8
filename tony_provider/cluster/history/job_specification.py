"""The specification that an application was started with, as it is kept beside its records."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from tony_provider.cluster.history.environment_content import EnvironmentContent


@attrs.frozen(kw_only=True)
class KeptResource:
    """A file or archive of the job, and where on the store it stays after the application's end."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    name: str  # in a container
    uri: str
    key: str  # of the job's entry that names it, such as files.train.py or python_env


@attrs.frozen(kw_only=True)
class JobSpecification:
    """The specification of an application, for people: secret values are masked, names of secrets are not."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    job: dict[str, Any]  # as parsed: with overrides and all defaults
    given: dict[str, Any] | None = None  # as it was written, before anything was laid over it; None: not known
    overrides: dict[str, Any] | None = None  # what was laid over it; None: nothing
    environments: dict[str, EnvironmentContent] = attrs.field(factory=dict)  # by their keys in the job
    resources: list[KeptResource] | None = None  # None: they are too many, or an older release did not keep them
    version: int = 1  # of this form
