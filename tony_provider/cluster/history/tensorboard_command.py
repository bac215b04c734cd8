"""The command by which a person draws the curves of jobs on a machine of their own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def tensorboard_command(
    application_ids: Sequence[str], tony_conn_id: str = "tony_default", proxy_user: str | None = None
) -> str:
    """The command line to copy: it draws these applications side by side."""
    words = ["airflow", "tony", "tensorboard", *application_ids]
    if tony_conn_id != "tony_default":
        words += ["--conn-id", tony_conn_id]
    if proxy_user:
        words += ["--proxy-user", proxy_user]
    return shlex.join(words)
