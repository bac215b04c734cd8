"""The commands ``airflow tony env build`` and ``airflow tony runtime build``.

They build a Python environment for jobs, and a runtime archive for the nodes' versions of Python.
"""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from pathlib import Path

from tony_provider.cli.command import command, hook_of, say
from tony_provider.cluster.environments.build import BuildFailed, BuildTarget, build_environment
from tony_provider.cluster.environments.requirements import read_requirements
from tony_provider.cluster.environments.runtime_archive import PLATFORMS
from tony_provider.cluster.environments.runtime_archive import build as build_archive
from tony_provider.cluster.errors import ClusterError
from tony_provider.runtime.common.python_packages import Version
from tony_provider.runtime.common.quantities import size
from tony_provider.runtime.common.text import printable

_PYTHON = re.compile(r"3\.(\d{1,2})")
_OLDEST = 9


@command
def build_env(args: Namespace) -> None:
    """Build an environment. Prints only the URI to stdout, so that shells can use it; the rest goes to stderr."""
    python = None if args.python is None else _version(args.python, "3.12")
    target = BuildTarget.of(python, args.platform)
    requirements = read_requirements(Path(args.requirements))
    with hook_of(args) as hook:
        own, shared = hook.built_environments(), hook.shared_environments()
        if args.shared and shared is None:
            raise BuildFailed(f"--shared: the connection {args.conn_id!r} names no `shared_cache`")
        kept = shared if args.shared and shared is not None else own
        others = [] if args.shared or shared is None else [shared]
        try:
            built = build_environment(kept, requirements, target, args.installer, others)
        except OSError as error:
            raise BuildFailed(f"the environment could not be built: {error}") from error
    if built.was_there:
        print(printable("It is there already: nothing was built"), file=sys.stderr)  # noqa: T201
    say(built.uri)


def _version(text: str, example: str) -> Version:
    match = _PYTHON.fullmatch(text)
    if match is None or int(match[1]) < _OLDEST:
        raise BuildFailed(f"--python: {text!r} is not a version of Python; write 3.9 or newer, such as {example}")
    return 3, int(match[1])


def build_runtime(args: Namespace) -> None:
    """Build a runtime archive. Exits with a message if that fails."""
    pythons = [version.strip() for version in args.python.split(",") if version.strip()]
    platforms = args.platform.split(",") if args.platform else list(PLATFORMS)
    output = Path(args.output)
    try:
        for version in pythons:
            _version(version, "3.9,3.12")
        build_archive(pythons, output, platforms)
    except (ClusterError, OSError) as error:
        raise SystemExit(str(error)) from error
    say(f"{output.absolute()}: {size(output.stat().st_size)}, for Python {', '.join(pythons)}")
