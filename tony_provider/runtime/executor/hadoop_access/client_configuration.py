"""The configuration that Hadoop's clients read on this node: the node's own, or one that is written for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional
from xml.etree import ElementTree

_CORE, _HDFS = "core-site.xml", "hdfs-site.xml"
_USUAL = Path("/etc/hadoop/conf")


def of_node(environ: Mapping[str, str]) -> Optional[Path]:
    """The node's directory of Hadoop's configuration; None when it has none that we may read and that says anything.

    Blocks.
    """
    return next(filter(_says_anything, _candidates(environ)), None)


def write(directory: Path, properties: Mapping[str, str]) -> None:
    """Write Hadoop's files with these properties. Blocks; raises OSError.

    HDFS's own go into its own file: the defaults of HDFS are laid over what the other one says.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    of_hdfs = {name for name in properties if name.startswith("dfs.")}
    _write(directory / _CORE, {name: properties[name] for name in properties if name not in of_hdfs})
    _write(directory / _HDFS, {name: properties[name] for name in properties if name in of_hdfs})


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("HADOOP_CONF_DIR"):
        yield Path(environ["HADOOP_CONF_DIR"])
    for name in ("HADOOP_HOME", "HADOOP_COMMON_HOME"):
        if environ.get(name):
            yield Path(environ[name], "etc", "hadoop")
    yield _USUAL


def _says_anything(directory: Path) -> bool:
    """A distribution's archive brings files without a property, and some nodes have theirs for the NodeManager only."""
    try:
        root = ElementTree.parse(directory / _CORE).getroot()  # noqa: S314 - the administrator's own
    except (OSError, ElementTree.ParseError):
        return False
    return len(root) > 0


def _write(path: Path, properties: Mapping[str, str]) -> None:
    root = ElementTree.Element("configuration")
    for name, value in sorted(properties.items()):
        entry = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(entry, "name").text = name
        ElementTree.SubElement(entry, "value").text = value
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
