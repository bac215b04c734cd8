from __future__ import annotations

import attrs
import pytest
from airflow.cli.cli_parser import get_parser

from tests.operators.conftest import local, yarn

__all__ = ["local", "tony", "yarn"]


@attrs.frozen
class Said:
    code: int
    out: str
    error: str


@attrs.frozen
class Tony:
    """``airflow tony …`` in this process: ``tony("list", "--all")``."""

    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Said:
        self.capture.readouterr()
        args = get_parser().parse_args(["tony", *arguments])
        code, error = 0, ""
        try:
            args.func(args)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
            error = "" if isinstance(end.code, int) else str(end.code)
        said = self.capture.readouterr()
        return Said(code, said.out, said.err + error)


@pytest.fixture
def tony(capfd: pytest.CaptureFixture[str]) -> Tony:
    return Tony(capfd)
