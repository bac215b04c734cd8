"""What Hadoop's own clients, and masters in Java, find on a machine that is a client of the cluster."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.resolve import resolve
from tests.hadoop.tools import java_program
from tests.jobs.places import USER

_CLASSPATH = """<configuration>
  <property><name>yarn.application.classpath</name><value>{}</value></property>
"""


class JavaClient:
    """A folder with the configuration and a ``yarn`` that says the class path, as a Hadoop client has them."""

    def __init__(self, cluster: HadoopCluster, home: Path) -> None:
        self.jars = resolve(cluster.settings.version) / "jars"
        conf, self._programs = home / "conf", home / "bin"
        shutil.copytree(cluster.layout.conf("client"), conf)
        self.classpath = f"{conf}:{self.jars}/*"
        site = conf / "yarn-site.xml"
        places = self.classpath.replace(":", ",")
        site.write_text(site.read_text().replace("<configuration>\n", _CLASSPATH.format(places)))
        self._programs.mkdir()
        yarn = self._programs / "yarn"
        yarn.write_text(f"#!/bin/sh\necho '{self.classpath}'\n")
        yarn.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        java = java_program()
        assert java is not None
        own = {"HADOOP_USER_NAME": USER, "JAVA_HOME": str(Path(java).resolve().parent.parent)}
        return {**os.environ, **own, "PATH": f"{self._programs}:{os.environ['PATH']}"}
