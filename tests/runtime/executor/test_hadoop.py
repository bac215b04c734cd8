"""What a user process finds of Hadoop with the key ``hadoop``, and without it."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import job
from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, WEBHDFS_TOKEN, Credentials, Token
from tony_provider.runtime.jobspec.model import HadoopSpec
from tony_provider.runtime.protocol import tony_pb2

_SHOW = 'python -c \'import json, os; json.dump(dict(os.environ), open("seen.json", "w"))\''
TOKEN = Token(b"alice", b"password", HDFS_TOKEN, "ha-hdfs:one")
PROPERTIES = {"fs.defaultFS": "hdfs://one", "dfs.nameservices": "one"}
TICKET = {contract.ENV_TICKET: "FILE:/tmp/krb5cc_alice"}


async def look(launch: Launch, **container: object) -> tuple[dict[str, str], str]:
    """The environment of a user process, and its log."""
    running = await launch(**container)
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 0, ended.output_tail
    seen: dict[str, str] = json.loads((running.container.directory / "seen.json").read_text())
    assert await running.end() == 0
    return seen, running.log


def is_there(path: str) -> bool:
    return Path(path).exists()


def read(directory: str, name: str) -> str:
    return Path(directory, name).read_text()


def node_with_hadoop(root: Path) -> dict[str, str]:
    """The variables of a node where it is installed and configured."""
    home = root / "hadoop"
    (home / "etc" / "hadoop").mkdir(parents=True)
    (home / "etc" / "hadoop" / "core-site.xml").write_text("<configuration><property/></configuration>")
    (home / "bin").mkdir()
    (home / "bin" / "hadoop").write_text(
        '#!/bin/sh\necho "$HADOOP_CONF_DIR:$JAVA_HOME.jar$HADOOP_TOKEN_FILE_LOCATION"\n'
    )
    (home / "bin" / "hadoop").chmod(0o755)
    return {"HADOOP_HOME": str(home)}


async def test_without_the_key_there_is_nothing(launch: Launch) -> None:
    seen, log = await look(launch, command=job(_SHOW), tokens={"one": TOKEN}, hadoop=PROPERTIES, env=TICKET)
    assert {contract.ENV_TOKEN_FILE, "HADOOP_CONF_DIR", "HADOOP_USER_NAME", *TICKET}.isdisjoint(seen)
    assert "hadoop" not in log


async def test_on_a_node_without_hadoop(launch: Launch) -> None:
    spec = job(f'cp "${contract.ENV_TOKEN_FILE}" seen-tokens && {_SHOW}', hadoop=HadoopSpec())
    seen, log = await look(launch, command=spec, tokens={"one": TOKEN}, hadoop=PROPERTIES, env=TICKET)
    assert Credentials.read_file(Path(seen["PWD"], "seen-tokens")) == Credentials({"one": TOKEN})
    assert not is_there(seen[contract.ENV_TOKEN_FILE])  # the container's directory may stay for longer
    assert "hdfs://one" in read(seen["HADOOP_CONF_DIR"], "core-site.xml")
    assert (seen["HADOOP_USER_NAME"], seen[contract.ENV_TICKET]) == ("somebody", TICKET[contract.ENV_TICKET])
    assert "CLASSPATH" not in seen
    assert (
        "hadoop: tokens for ha-hdfs:one; configuration of the ResourceManager; "
        "no class path, because hadoop is not on PATH and HADOOP_HOME is not set"
    ) in log


async def test_on_a_node_with_hadoop(launch: Launch, tmp_path: Path) -> None:
    env = node_with_hadoop(tmp_path)
    configuration = f"{env['HADOOP_HOME']}/etc/hadoop"
    seen, log = await look(launch, command=job(_SHOW, hadoop=HadoopSpec()), hadoop=PROPERTIES, env=env)
    assert contract.ENV_TOKEN_FILE not in seen
    assert seen["HADOOP_CONF_DIR"] == configuration
    assert seen["CLASSPATH"] == f"{configuration}:{configuration}:/usr/lib/jvm/of-the-node.jar"
    assert (
        f"hadoop: no tokens, user somebody; configuration in {configuration}; class path of {env['HADOOP_HOME']}" in log
    )


async def test_what_the_job_says_itself_counts(launch: Launch, tmp_path: Path) -> None:
    mine = {"CLASSPATH": "/mine.jar", "HADOOP_USER_NAME": "bob", "HADOOP_CONF_DIR": str(tmp_path / "mine")}
    spec = attrs.evolve(job(_SHOW, hadoop=HadoopSpec()), env=mine)
    seen, _ = await look(launch, command=spec, hadoop=PROPERTIES, env=node_with_hadoop(tmp_path))
    assert {name: seen[name] for name in mine} == mine


async def test_a_newer_token_reaches_a_running_process(launch: Launch) -> None:
    newer = Token(b"identifier", b"renewed", WEBHDFS_TOKEN, "")
    file = f"${contract.ENV_TOKEN_FILE}"
    wait = f"test -e {file} && touch began; until grep -q renewed {file}; do sleep 0.05; done; cp {file} seen-tokens"
    store_token = attrs.evolve(TOKEN, kind=WEBHDFS_TOKEN, service="").to_url_string().encode()
    submitted = {contract.SECRET_STORE_TOKEN: store_token}
    running = await launch(
        job(wait, hadoop=HadoopSpec()), tokens={TOKEN.service: TOKEN}, more_secrets=submitted, heartbeat_seconds=0.05
    )
    await running.master.first("heartbeat")  # before there is a process, and a file
    await running.begin()
    await running.until_there("began")
    running.master.say(tony_pb2.ToExecutor(newer_token=tony_pb2.NewerToken(text=newer.to_url_string(), until_ms=1)))
    ended = await running.master.first("exited")
    assert ended.exit_code == 0, ended.output_tail
    found = Credentials.read_file(running.container.directory / "seen-tokens")
    assert found.tokens[TOKEN.service] == Token(b"identifier", b"renewed", HDFS_TOKEN, TOKEN.service)
    assert not found.secrets
