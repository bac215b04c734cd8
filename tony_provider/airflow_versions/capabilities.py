"""What of Airflow not every version has that this provider runs on, and what there is without it.

``docs/airflow-versions.md`` tells people of each by its name.
"""

from __future__ import annotations

from typing import NoReturn

import attrs

from tony_provider.airflow_versions.version import AIRFLOW, is_at_least


class AirflowTooOld(RuntimeError):  # noqa: N818 - named for what is wrong
    """Something was used that the installed Airflow is too old for; the message says what, and since when there is."""


@attrs.frozen
class Capability:
    """Something of Airflow that this provider uses where it is there, and people miss where it is not."""

    name: str
    since: tuple[int, int]
    without: str  # what there is instead, as a sentence

    @property
    def is_here(self) -> bool:
        """Whether the installed Airflow has it."""
        return is_at_least(*self.since)

    def refuse(self, what: str) -> NoReturn:
        """Raise AirflowTooOld for ``what``, which somebody uses and which needs this."""
        since = ".".join(map(str, self.since))
        raise AirflowTooOld(f"{what} needs Airflow {since} or newer, and this is Airflow {AIRFLOW}. {self.without}")


TASK_STATES = Capability(
    "Task state store", (3, 3), "What a try must know of those before it, it reads from the job's store."
)
PORTAL = Capability("Portal", (3, 3), "A job has its own page while it runs; `airflow tony list` names those that do.")
RETRY_POLICIES = Capability(
    "Retry policies", (3, 3), "Leave retry_policy out: retries and retry_delay hold, whatever has failed."
)
RESCHEDULED_MEMORY = Capability(
    "Rescheduled sensors", (3, 3), 'Use deferrable=True, or mode="poke": these remember what they have seen.'
)
TRIGGERS_ARE_KILLED = Capability(
    "Triggers that are told of a user's action",
    (3, 3),
    "A trigger that is cancelled asks Airflow whether its task is still deferred, and ends the job where it is not.",
)
COMMANDS = Capability("Commands of providers", (3, 2), "Type `python -m tony_provider.cli` for `airflow tony`.")
CONNECTION_FORM = Capability(
    "Fields of the connection's form", (3, 2), "The form has one field for them all, Extra, which takes them as JSON."
)
EMPTY_XCOMS = Capability(
    "XComs without a value", (3, 1), "Keys of a result that would be None are left out: read them with `.get(key)`."
)

CAPABILITIES = (
    TASK_STATES,
    PORTAL,
    RETRY_POLICIES,
    RESCHEDULED_MEMORY,
    TRIGGERS_ARE_KILLED,
    COMMANDS,
    CONNECTION_FORM,
    EMPTY_XCOMS,
)
