"""``python -m tests.airflows [VERSION …]``: the provider on one Airflow after the other, and a table of them.

Each has an environment of its own in ``.tony/airflows``, which stays for the next time. On each: the import of every
module, the tests of what stands in for that which it lacks, the example of ``make demo``, and the rows of ``make e2e``
that ``make test`` runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.airflows.releases import RELEASES, Release
from tests.pythons.environment import ROOT, environment

HOME = ROOT / ".tony" / "airflows"
OUTPUT = ROOT / "test-output" / "airflows"
TRAINING_ENV = Path(sys.prefix)  # has TensorFlow; those of the Airflows have not
_RESULT = re.compile(r"^(?P<state>FAILED|ERROR|SKIPPED).*?\[(?P<row>[^\]]+)\]", re.MULTILINE)
_COUNT = re.compile(r"(\d+) passed")


def main(chosen: Sequence[str]) -> int:
    """The exit code: 0 when all has passed."""
    known = [release.version for release in RELEASES]
    if unknown := [version for version in chosen if version not in known]:
        print(f"{', '.join(unknown)}: not among {', '.join(known)}", file=sys.stderr)
        return 2
    OUTPUT.mkdir(parents=True, exist_ok=True)
    rows = [tried(release) for release in RELEASES if not chosen or release.version in chosen]
    table = "\n".join("{:8} {:8} {:10} {:8} {}".format(*row) for row in (_HEAD, *rows))
    (OUTPUT / "table.txt").write_text(f"{table}\n")
    print(f"\n{table}\n\nWhat each has said is in {OUTPUT}")
    return 1 if "FAILED" in table else 0


_HEAD = ("Airflow", "imports", "stand-ins", "demo", "rows of e2e")
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


def tried(release: Release) -> tuple[str, str, str, str, str]:
    """Its line of the table."""
    print(f"\nAirflow {release.version}: setting up {HOME / release.version} …", flush=True)
    python = environment(HOME / release.version, sys.executable, release.requirements)
    home = HOME / f"demo-{release.version}"
    imports = _run(release, "imports", [python, "-m", "tests.airflows.import_all"])[0]
    stand_ins = _run(release, "stand-ins", [python, *_PYTEST, "tests/airflows"])[0]
    demo = _run(release, "demo", [python, "-m", "tests.demo", "local", "--home", home])[0]
    e2e, said = _run(release, "e2e", [python, *_PYTEST, "tests/e2e/test_rows.py"])
    return release.version, imports, stand_ins, demo, f"{e2e}: {_rows(said)}"


def _run(release: Release, name: str, command: Sequence[str | Path]) -> tuple[str, str]:
    """``passed`` or FAILED, and what it has said."""
    told = OUTPUT / f"{release.version}-{name}.txt"
    print(f"  {name} …", end=" ", flush=True)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")},
        "TONY_EXAMPLES_PYTHON_ENV": str(TRAINING_ENV),
        "E2E_PYTHON_ENV": str(TRAINING_ENV),
        "E2E_OUTPUT": str(OUTPUT / f"{release.version}-e2e"),
    }
    with told.open("w") as output:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    result = "passed" if done.returncode == 0 else "FAILED"
    print(result, flush=True)
    return result, told.read_text(errors="replace")


def _rows(said: str) -> str:
    passed = _COUNT.search(said)
    others = [f"{found['row']} {found['state'].lower()}" for found in _RESULT.finditer(said)]
    return ", ".join([f"{passed[1] if passed else 0} passed", *others])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
