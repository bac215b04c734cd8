"""What a Python environment holds, as far as it can be told without running it."""

from __future__ import annotations

from typing import ClassVar

import attrs

from tony_provider.runtime.spec.python_env import EnvironmentKind


@attrs.frozen(kw_only=True)
class EnvironmentContent:
    """An environment of a job. None: it does not say."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    python_env: str  # as the job names it
    kind: EnvironmentKind
    python: str | None = None  # the version that it is for, such as 3.12
    machines: list[str] | None = None  # as ``uname -m`` says them; an empty list: any
    packages: dict[str, str] | None = None  # versions by name
    built: bool = False  # by `airflow tony env build`
    shared: bool = False  # of the connection's shared cache
    sha256: str | None = None  # of its archive or PEX, where that is known

    @property
    def brings_python(self) -> bool:
        """Whether it is to have an interpreter of its own that containers get with it."""
        return self.kind is EnvironmentKind.ARCHIVE and not self.built
