"""The releases of Airflow that the provider is tried on, and how an environment of each is had from a package index."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

# Airflow's own lists of what a release was tested with are no packages. What an index had on the day after the release
# is as near as it gets; but for those packages of which the provider wants newer versions, and what these need.
_NEWER = ("apache-airflow-providers-common-compat", "cffi", "cryptography", "grpcio", "protobuf", "urllib3")
_NEWEST = "2026-11-20"  # of those, and no later: the same versions tomorrow
# The examples' tasks that run on Airflow's side, and what the tests drive an Airflow with. Trainings have their own
# environment, that of the repository: so none of these needs a TensorFlow.
_TOOLS = ("scikit-learn", "asyncpg", "psycopg2-binary", "selenium", "pytest", "pytest-asyncio", "pytest-timeout")
_PLUGINS = ("pytest-xdist", "hypothesis", "apache-airflow-providers-git", "apache-airflow-providers-openlineage")


@attrs.frozen
class Release:
    """The last one of a minor version."""

    version: str
    day_after: str  # its release; empty: it is what constraints.txt pins
    common_compat: str = ""  # the oldest that the provider takes, or what there was on that day

    @property
    def requirements(self) -> Sequence[str]:
        """As ``uv pip install`` takes them."""
        if not self.day_after:
            return ("-c", "constraints.txt", "-e", ".", *_TOOLS, *_PLUGINS)
        newer = [option for name in _NEWER for option in ("--exclude-newer-package", f"{name}={_NEWEST}")]
        pins = (
            f"apache-airflow=={self.version}",
            f"apache-airflow-providers-common-compat=={self.common_compat}",
        )
        return ("--exclude-newer", self.day_after, *newer, *pins, "-e", ".", *_TOOLS, *_PLUGINS)


RELEASES = (
    Release("3.0.6", "2025-08-30", "1.12.0"),
    Release("3.1.8", "2026-03-12", "1.14.0"),
    Release("3.2.2", "2026-05-30", "1.15.0"),
    Release("3.3.2", ""),
)
