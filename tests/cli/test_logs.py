"""How ``airflow tony logs`` writes to a terminal, and to a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Tony
from tests.hooks.jobs import ended, identity, job
from tony_provider.cli import logs
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.tony import TonyHook

PRINTED = b"\x1b]0;owned\x07\x1b[31mred\x1b[0m\x1b[2J 10%\r 20%\n"


def test_a_long_log_is_printed_in_pieces(
    tony: Tony, local: TonyHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_PIECE", 7)
    printed = tmp_path / "printed"
    printed.write_bytes(b"one\ntwo\n" + b"x" * 30 + b"\nthe end\n")
    application_id = local.submit(SubmissionRequest(job(f"cat {printed}"), identity(local))).application_id
    ended(local, application_id)
    assert tony("logs", application_id).out.endswith(printed.read_text())


def test_a_terminal_gets_no_orders_but_colours(
    tony: Tony, local: TonyHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = tmp_path / "printed"
    printed.write_bytes(PRINTED)
    application_id = local.submit(SubmissionRequest(job(f"cat {printed}"), identity(local))).application_id
    ended(local, application_id)
    assert PRINTED.decode().replace("\r", "") in tony("logs", application_id).out.replace("\r", "")
    reading, writing = os.openpty()
    with os.fdopen(writing, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert tony("logs", application_id).code == 0
    said = b""
    while not said.endswith(b"20%\r\n"):  # a terminal gives what is there by then; at its end it raises OSError
        said += os.read(reading, 4096)
    os.close(reading)
    assert b"\x1b[31mred\x1b[0m 10%\r 20%" in said
    assert b"\x1b[2J" not in said
    assert b"owned" not in said
