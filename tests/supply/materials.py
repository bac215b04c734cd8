"""``python -m tests.supply.materials``: a bill of materials (CycloneDX) beside each wheel in dist/.

It lists what a fresh environment has in which the wheel was installed by the pins of constraints.txt. What is vendored
in the wheel is not a package, and not in it: see tony_provider/portal/static/vendor.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.supply.tools import CYCLONEDX, ROOT, UV, run_tool


def main() -> int:
    """An exit code."""
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    for wheel in wheels:
        target = wheel.with_suffix(".cdx.json")
        done = describe(wheel, target)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        print(target.relative_to(ROOT))
    return 0 if wheels else 1


def describe(wheel: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Write the bill of one wheel."""
    with TemporaryDirectory(prefix="tony-materials-") as folder:
        python = str(Path(folder, "bin", "python"))
        subprocess.run([UV, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        install = [UV, "pip", "install", "--quiet", "--python", python, "-c", "constraints.txt", str(wheel)]
        subprocess.run(install, cwd=ROOT, check=True)
        # The version is not in pyproject.toml: hatchling reads it from the package.
        options = ["--pyproject", "pyproject.toml", "--mc-type", "library", "--output-reproducible"]
        done = run_tool(CYCLONEDX, "cyclonedx-py", "environment", *options, "--output-file", str(target), python)
    if done.returncode == 0:
        bill = json.loads(target.read_text())
        bill["metadata"]["component"]["version"] = wheel.name.split("-")[1]
        target.write_text(json.dumps(bill, indent=2) + "\n")
    return done


if __name__ == "__main__":
    sys.exit(main())
