"""Size limits of snapshots, and descriptions of directories that exceed them and of excluded entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from tony_provider.runtime.artifacts.tree import Tree
from tony_provider.runtime.artifacts.upload import SMALL
from tony_provider.runtime.protocol import limits
from tony_provider.runtime.quantities import count, size, some
from tony_provider.runtime.spec.model import Memory

_ENTRY = 115  # bytes of an entry in the request for a commit, without its names
_OBJECT = 60  # bytes of an object in that request; each large file has its own object
_NAMED = 3  # entries in a message


def problem(tree: Tree, max_size: Optional[Memory]) -> str:
    """Return the reason if a tree is too large to be stored, otherwise an empty text.

    ``max_size``: ``checkpoint.max_size`` in MiB.
    """
    listed = sum(
        len(path.encode()) + len(node.target.encode()) + _ENTRY + (_OBJECT if node.version.size > SMALL else 0)
        for path, node in tree.nodes.items()
    )
    if listed > limits.largest("uploaded"):
        return too_many(len(tree.nodes), listed)
    if max_size is None or tree.size <= max_size << 20:
        return ""
    sizes: dict[str, int] = {}
    for path, node in tree.files.items():
        top = path.partition("/")[0]
        sizes[top] = sizes.get(top, 0) + node.version.size
    largest = sorted(sizes, key=lambda top: (-sizes[top], top))
    return (
        f"the directory has {size(tree.size)}, more than checkpoint.max_size ({size(max_size << 20)}). "
        f"The largest entries are {some((f'{top} ({size(sizes[top])})' for top in largest), _NAMED)}. Have the "
        "program delete old saves, leave files out with checkpoint.exclude, or raise checkpoint.max_size"
    )


def too_many(entries: int, listed: int) -> str:
    """Describe a directory with too many entries, whose list takes ``listed`` bytes."""
    return (
        f"it has {entries} files and directories. Their list takes {size(listed)}, more than the limit of "
        f"{size(limits.largest('uploaded'))}. Have the program write fewer and larger files, or leave files out by "
        "checkpoint.exclude"
    )


def describe_excluded(directory: Path, paths: Sequence[str]) -> str:
    """Describe the entries that ``checkpoint.exclude`` leaves out. Raises OSError if one cannot be read."""
    below = (each for path in paths for each in (directory / path, *(directory / path).rglob("*")))
    sizes = [each.stat().st_size for each in below if each.is_file() and not each.is_symlink()]
    files = f"{count(len(sizes), 'file')} ({size(sum(sizes))})"
    return f"checkpoints leave out {files} by checkpoint.exclude: {some(paths, _NAMED)}"
