"""A stand-in for what a node has of Hadoop beside the jars: the scripts, which Maven Central does not have."""

from __future__ import annotations

from pathlib import Path

from tests.hadoop.resolve import resolve
from tests.hadoop.tools import java_program

# What it takes of the environment, the real one does, too: HADOOP_CONF_DIR, HADOOP_OPTS.
_SCRIPT = """\
#!/bin/sh
jars=$(echo {jars}/*.jar | tr ' ' ':')
case "$1" in
    classpath) echo "$HADOOP_CONF_DIR:$jars" ;;
    dfs) shift; exec {java} $HADOOP_OPTS -cp "$HADOOP_CONF_DIR:$jars" org.apache.hadoop.fs.FsShell "$@" ;;
    *) echo "$1 is not known" >&2; exit 1 ;;
esac
"""


def lay_out(home: Path, version: str) -> Path:
    """Make a HADOOP_HOME with ``bin/hadoop classpath --glob`` and ``bin/hdfs dfs …``; returns it."""
    (home / "bin").mkdir(parents=True)
    for name in ("hadoop", "hdfs"):
        script = home / "bin" / name
        script.write_text(_SCRIPT.format(jars=resolve(version) / "jars", java=java_program()))
        script.chmod(0o755)
    return home
