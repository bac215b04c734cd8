"""The start of the runtime in a container: ``python -I -S tony/start.py am|executor``.

Python could import from the archive without this module. But zipimport takes a fifth longer, because it reads the whole
list of files and opens the archive for each module. So the runtime archive has an index of its files.

When a class is imported or first used, attrs and cattrs generate code for it. Compiling this code would take a third of
the start time, so the archive also has the compiled code.
"""

import gc
import importlib.util
import marshal
import os
import runpy
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import InspectLoader
else:
    InspectLoader = object  # importlib.abc loads tempfile and much more

_GENERATING = ("attr._make", "cattrs.gen")  # modules that compile generated code
_DIGITS = str.maketrans("", "", "-0123456789")
_HEADER = 16  # bytes before the code in a bytecode file; the first four identify the Python version


def generated_name(script: str, filename: str) -> str:
    """Return the name of the compiled script in the archive. Digits are ignored, because attrs includes hashes."""
    return "generated/" + importlib.util.source_hash((filename + script).translate(_DIGITS).encode()).hex()


class Runtime(InspectLoader):
    """Finds and loads the modules of the runtime: modules in the archive by the index, compiled modules as files."""

    def __init__(self, directory: str) -> None:
        self.archive = os.path.join(directory, "runtime.zip")
        self._libraries = os.path.join(directory, "lib")
        self._file = os.open(self.archive, os.O_RDONLY | os.O_CLOEXEC)
        with open(os.path.join(directory, "index"), "rb") as file:
            self._index: dict[str, tuple[int, int]] = marshal.load(file)  # noqa: S302 - verified

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        below = fullname.replace(".", "/")
        place = os.path.join(self.archive, below)
        name = self._source(fullname)
        if below + "/" in self._index:
            # Exclude other finders from this package, because zipimport would read the archive's whole list of files.
            sys.path_importer_cache[place] = None
        if name in self._index:
            return importlib.util.spec_from_file_location(
                fullname,
                os.path.join(self.archive, name),
                loader=self,
                submodule_search_locations=[place] if self.is_package(fullname) else None,
            )
        if below + "/" in self._index:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [place]
            return spec
        for suffix in EXTENSION_SUFFIXES:
            compiled = os.path.join(self._libraries, below + suffix)
            if os.path.exists(compiled):
                return importlib.util.spec_from_file_location(fullname, compiled)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in _GENERATING:
            module.__dict__["compile"] = self.compile_generated
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 - verified

    def get_code(self, fullname: str) -> CodeType:
        name = self._source(fullname)
        if name + "c" in self._index:
            content = self._read(name + "c")
            if content.startswith(importlib.util.MAGIC_NUMBER):
                code: CodeType = marshal.loads(memoryview(content)[_HEADER:])  # noqa: S302 - verified
                return code
        return compile(self._read(name), os.path.join(self.archive, name), "exec", dont_inherit=True)

    def compile_generated(self, script: str, filename: str, mode: str) -> CodeType:
        name = generated_name(script, filename)
        if filename and name in self._index:  # without a file name, scripts could differ in their numbers only
            code: CodeType = marshal.loads(self._read(name))  # noqa: S302 - verified
            return code
        return compile(script, filename, mode)

    def get_source(self, fullname: str) -> "str | None":
        return importlib.util.decode_source(self._read(self._source(fullname)))

    def get_data(self, path: str) -> bytes:
        name = os.path.relpath(path, self.archive)
        if name not in self._index:
            raise FileNotFoundError(f"{name} is not in the runtime archive")
        return self._read(name)

    def is_package(self, fullname: str) -> bool:
        return self._source(fullname).endswith("/__init__.py")

    def _source(self, fullname: str) -> str:
        below = fullname.replace(".", "/")
        return below + ("/__init__.py" if below + "/__init__.py" in self._index else ".py")

    def _read(self, name: str) -> bytes:
        start, size = self._index[name]
        return os.pread(self._file, size, start)


def main() -> None:
    gc.disable()  # until all modules are loaded, because they stay in memory and contain no garbage
    runtime = Runtime(os.path.dirname(os.path.abspath(__file__)))
    sys.meta_path.insert(2, runtime)  # after built-in and frozen modules
    # The archive is in the path for importlib.metadata and for child processes. This process does not read the
    # archive's own file list.
    sys.path.append(runtime.archive)
    sys.path_importer_cache[runtime.archive] = None
    program = sys.argv.pop(1)
    if program not in ("am", "executor"):
        sys.exit(f"the runtime has no program {program!r}; use am or executor")
    runpy.run_module(f"tony_provider.runtime.{program}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
