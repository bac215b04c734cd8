"""The bytecode of the runtime archive's modules: a node's first process of ours would else compile hundreds of them.

The bytecode lies next to its source, where Python looks for it in an archive, and is for one version of Python. Python
does not check whether it fits the source, because both come in the same archive.
"""

from __future__ import annotations

import logging
import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

from tony_provider.cluster.archived_frameworks import ArchiveEntry
from tony_provider.runtime.child_environment import absolute_entries

log = logging.getLogger(__name__)

_SECONDS = 300.0  # for some 700 modules, which take two
_PLAIN = 2  # a version of marshal's format that every Python reads
_UNCHECKED = b"\1\0\0\0"  # flags of a file that goes with its source by hash, and is not compared (PEP 552)

# In a process of its own, whose hashes are the same each time: constants would have another order, and the archive
# other bytes. A module that this Python cannot compile is left to those that can.
_PROGRAM = f"""
import importlib.util, marshal, sys
made = []
for name, source in marshal.load(sys.stdin.buffer):
    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except SyntaxError:
        continue
    head = importlib.util.MAGIC_NUMBER + {_UNCHECKED!r} + importlib.util.source_hash(source)
    made.append((name + "c", head + marshal.dumps(code)))
sys.stdout.buffer.write(marshal.dumps(made, {_PLAIN}))
"""


def _interpreter(python: str) -> str | None:
    """The interpreter of a version (such as ``3.9``) on this machine, if there is one."""
    if python == "{}.{}".format(*sys.version_info[:2]) and sys.executable:
        return sys.executable
    return shutil.which(f"python{python}", path=absolute_entries(os.environ.get("PATH", os.defpath)))


def bytecode(python: str, entries: Mapping[str, ArchiveEntry]) -> dict[str, ArchiveEntry]:
    """The bytecode for a Python of the modules among ``entries``; nothing where this machine has no such Python.

    The same modules give the same bytes.
    """
    program = _interpreter(python)
    if program is None:
        log.info("There is no Python %s here: the archive has no bytecode for it, nodes compile what they run", python)
        return {}
    sources = [(name, entry.read()) for name, entry in sorted(entries.items()) if name.endswith(".py")]
    try:
        done = subprocess.run(
            [program, "-S", "-s", "-W", "ignore", "-c", _PROGRAM],
            input=marshal.dumps(sources, _PLAIN),
            cwd="/",  # otherwise modules of the current directory would hide the standard library
            env={"PYTHONHASHSEED": "0"},
            capture_output=True,
            check=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("The archive has no bytecode for Python %s, nodes compile what they run: %s", python, error)
        return {}
    return {name: ArchiveEntry(content) for name, content in marshal.loads(done.stdout)}  # noqa: S302 - made above
