"""Which configuration Hadoop's clients find: the node's own where it says anything, else one that is written."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tony_provider.runtime.executor import hadoop_access

SAYS = "<configuration><property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property></configuration>"
EMPTY = '<?xml version="1.0"?>\n<configuration>\n</configuration>\n'


@pytest.fixture(autouse=True)
def _no_hadoop_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hadoop_access, "_USUAL", tmp_path / "etc" / "hadoop" / "conf")


def configured(directory: Path, text: str = SAYS) -> Path:
    directory.mkdir(parents=True)
    (directory / "core-site.xml").write_text(text)
    return directory


def test_what_the_variable_names(tmp_path: Path) -> None:
    directory, home = configured(tmp_path / "conf"), configured(tmp_path / "home" / "etc" / "hadoop")
    environ = {"HADOOP_CONF_DIR": str(directory), "HADOOP_HOME": str(tmp_path / "home")}
    assert hadoop_access.node_configuration(environ) == directory
    del environ["HADOOP_CONF_DIR"]
    assert hadoop_access.node_configuration(environ) == home
    assert hadoop_access.node_configuration({}) is None


@pytest.mark.parametrize("text", [EMPTY, "<configuration>", ""], ids=["of-a-distribution", "broken", "nothing"])
def test_one_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    directory = configured(tmp_path / "conf", text)
    assert hadoop_access.node_configuration({"HADOOP_CONF_DIR": str(directory)}) is None
    assert hadoop_access.node_configuration({"HADOOP_CONF_DIR": str(tmp_path / "not-in-this-image")}) is None


def test_what_is_written_is_read_by_hadoop(tmp_path: Path) -> None:
    properties = {"fs.defaultFS": "hdfs://a&b", "dfs.nameservices": "a&b", "hadoop.rpc.protection": "privacy"}
    hadoop_access.write_configuration(tmp_path / "conf", properties)

    def of(name: str) -> dict[str | None, str | None]:
        found = ElementTree.parse(tmp_path / "conf" / name).getroot()
        return {each.findtext("name"): each.findtext("value") for each in found}

    assert of("core-site.xml") == {"fs.defaultFS": "hdfs://a&b", "hadoop.rpc.protection": "privacy"}
    assert of("hdfs-site.xml") == {"dfs.nameservices": "a&b"}
    assert hadoop_access.node_configuration({"HADOOP_CONF_DIR": str(tmp_path / "conf")}) == tmp_path / "conf"
