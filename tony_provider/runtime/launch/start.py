"""The main module of the runtime in a container: ``python -I -S tony/runtime.zip am|executor``.

Python could import from the archive without this module. But zipimport takes a fifth longer, because it reads the whole
list of files and opens the archive for each module. So the runtime archive has an index of its bytecode.
"""

import gc
import importlib.util
import marshal
import os
import runpy
import sys
import zipimport
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import CodeType

_HEADER = 16  # bytes before the code in a bytecode file


class _Runtime(MetaPathFinder, InspectLoader):
    """Finds and loads the modules of the runtime: bytecode by the index, compiled modules as files of their own."""

    def __init__(self, archive: Path) -> None:
        self._archive = str(archive)
        self._directory = archive.parent / "lib"
        self._file = os.open(archive, os.O_RDONLY | os.O_CLOEXEC)
        # For each module: whether it is a package, and its bytecode's offset and size in the archive. Size 0: no code.
        index = (self._directory / "index").read_bytes()
        self._index: dict[str, tuple[bool, int, int]] = marshal.loads(index)  # noqa: S302 - verified

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        below = fullname.replace(".", "/")
        if fullname in self._index:
            package, _, size = self._index[fullname]
            places = [f"{self._archive}/{below}"] if package else None
            if package and not size:
                spec = ModuleSpec(fullname, None, is_package=True)
                spec.submodule_search_locations = places
                return spec
            file = f"{self._archive}/{below}/__init__.py" if package else f"{self._archive}/{below}.py"
            return importlib.util.spec_from_file_location(
                fullname, file, loader=self, submodule_search_locations=places
            )
        for suffix in EXTENSION_SUFFIXES:
            compiled = self._directory / (below + suffix)
            if compiled.exists():
                return importlib.util.spec_from_file_location(fullname, compiled)
        return None

    def get_code(self, fullname: str) -> CodeType:
        _, start, size = self._index[fullname]
        code: CodeType = marshal.loads(os.pread(self._file, size, start)[_HEADER:])  # noqa: S302 - verified
        return code

    def get_source(self, fullname: str) -> "str | None":
        return zipimport.zipimporter(self._archive).get_source(fullname.replace(".", os.sep))

    def get_data(self, path: str) -> bytes:
        return zipimport.zipimporter(self._archive).get_data(path)

    def is_package(self, fullname: str) -> bool:
        return self._index[fullname][0]


def main() -> None:
    gc.disable()  # until all modules are loaded, because they stay in memory and contain no garbage
    sys.meta_path.insert(2, _Runtime(Path(sys.path[0])))  # after built-in and frozen modules
    program = sys.argv.pop(1)
    if program not in ("am", "executor"):
        sys.exit(f"the runtime has no program {program!r}; use am or executor")
    runpy.run_module(f"tony_provider.runtime.{program}", run_name="__main__", alter_sys=True)


main()
