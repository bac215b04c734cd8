"""What Airflow masks, and what it says of values that are too short to be masked in logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tony_provider.airflow_versions.masking import MASKER
from tony_provider.runtime.text import masked

_WARNING = "Skipping masking"  # as it begins


@contextmanager
def without_masking_warnings() -> Iterator[None]:
    """Meanwhile Airflow does not warn of secrets that are too short to be masked.

    For values that are none: it takes all of a connection's extra for secrets, such as a queue ``ml``, and a ``tony``
    connection has no place for one. It warns once in a process, so who masks real secrets has to say it itself.
    """
    logger = logging.getLogger(MASKER)
    logger.addFilter(_is_of_something_else)
    try:
        yield
    finally:
        logger.removeFilter(_is_of_something_else)


def _is_of_something_else(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_WARNING)


def mask_of(secrets: Mapping[str, str]) -> Callable[[str, str], str]:
    """How texts are shown to people: as Airflow would show them, and without the values of these secrets.

    The function takes a text, and the name of the variable that it is the value of, or nothing.
    """
    from airflow.providers.common.compat.sdk import redact

    def mask(text: str, name: str) -> str:
        return str(redact(masked(text, secrets.values()), name or None))

    return mask
