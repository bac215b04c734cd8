"""The program ``python -I main.py am|executor``: runs that program with the archive's own libraries.

Started by launch.sh.
"""

import gc
import runpy
import sys
from pathlib import Path


def main() -> None:
    gc.disable()  # until the program has loaded what it needs: that stays, and looking through it finds no garbage
    libraries = Path(__file__).resolve().parent / "lib"
    # Before everything else: an environment that is fit to train may hold other versions of the same libraries.
    sys.path[:0] = [str(libraries / "common"), str(libraries / "cp{}{}".format(*sys.version_info[:2]))]
    program = sys.argv.pop(1)
    if program not in ("am", "executor"):
        sys.exit(f"no program {program!r} in the runtime: am or executor")
    runpy.run_module(f"tony_provider.runtime.{program}", run_name="__main__", alter_sys=True)


main()
