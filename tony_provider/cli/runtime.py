"""``airflow tony runtime build``: make a runtime archive for nodes whose Python is not the worker's."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from tony_provider.cli.printing import say
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.runtime_archive import PLATFORMS
from tony_provider.cluster.runtime_archive import build as build_archive
from tony_provider.runtime.quantities import size

_PYTHON = re.compile(r"3\.\d+")
_OLDEST = (3, 9)


def build(args: Namespace) -> None:
    """The command. Exits with a message for what cannot be done."""
    pythons = [version.strip() for version in args.python.split(",") if version.strip()]
    for version in pythons:
        if not _PYTHON.fullmatch(version) or tuple(map(int, version.split("."))) < _OLDEST:
            raise SystemExit(f"--python: {version!r} is not a version of Python; write 3.9 or newer, such as 3.9,3.12")
    platforms = args.platform.split(",") if args.platform else list(PLATFORMS)
    output = Path(args.output)
    try:
        build_archive(pythons, output, platforms)
    except (ClusterError, OSError) as error:
        raise SystemExit(str(error)) from error
    say(f"{output.absolute()}: {size(output.stat().st_size)}, for Python {', '.join(pythons)}")
