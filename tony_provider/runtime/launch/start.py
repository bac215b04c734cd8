"""The main module of the runtime's archive in a container: ``python -I -S tony/runtime.zip am|executor``.

Python imports from the archive as it is. Only compiled modules must be files: prepare.py has put them into ``lib``.
"""

import gc
import importlib.util
import runpy
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path


class _CompiledModules(MetaPathFinder):
    """Finds the compiled modules of packages that are in the archive."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        for suffix in EXTENSION_SUFFIXES:
            file = self._directory / (fullname.replace(".", "/") + suffix)
            if file.exists():
                return importlib.util.spec_from_file_location(fullname, file)
        return None


def main() -> None:
    gc.disable()  # until the program has loaded what it needs: that stays, and looking through it finds no garbage
    archive = Path(sys.path[0])
    sys.meta_path.append(_CompiledModules(archive.parent / "lib"))
    program = sys.argv.pop(1)
    if program not in ("am", "executor"):
        sys.exit(f"no program {program!r} in the runtime: am or executor")
    runpy.run_module(f"tony_provider.runtime.{program}", run_name="__main__", alter_sys=True)


main()
