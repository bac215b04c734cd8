"""User programs that know nothing of us, and read and write HDFS: with the job's key ``hadoop``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.distribution import lay_out
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, LocalPlace, YarnPlace
from tests.kinds.table import Note
from tony_provider.runtime.common import contract
from tony_provider.runtime.storage.base import write_atomically

READ = '"$HADOOP_HOME"/bin/hdfs dfs -cat "$DATA" && "$HADOOP_HOME"/bin/hdfs dfs -cp "$DATA" "$DATA.copy"'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Hadoop as a node has it."""
    return tmp_path / "hadoop"


def job_that_reads(place: YarnPlace, home: Path, **fields: Any) -> dict[str, Any]:
    """A job over a file of the user's, which nobody else may read."""
    cluster = place.cluster
    data = f"{cluster.fs_default}/user/{USER}/{home.parent.name}/words.txt"
    storage = place.hook().storage()
    write_atomically(storage, data, b"two words\n")
    env = {"HADOOP_HOME": str(lay_out(home, cluster.settings.version)), "DATA": data}
    if cluster.settings.secure:  # nodes of real clusters have it in /etc
        env["HADOOP_OPTS"] = f"-Djava.security.krb5.conf={cluster.layout.krb5_conf}"
    return {"env": env, "restart": {"budget": 0}, "tasks": {"worker": {"memory": "600MiB", "command": READ}}, **fields}


def test_with_kerberos(secure: YarnPlace, home: Path, note: Note) -> None:
    spec = job_that_reads(secure, home, hadoop=True)
    job = secure.run(spec)

    job.succeeded()
    log = job.log("worker:0")
    assert "two words" in log.splitlines()
    assert f"hadoop: tokens for ha-hdfs:{secure.cluster.fs_default.removeprefix('hdfs://')}; configuration" in log
    copy = job.hook.storage().status(spec["env"]["DATA"] + ".copy")
    assert (copy.owner, copy.size) == (USER, len("two words\n"))
    assert_nothing_left(secure, job)
    note("hdfs:// with Kerberos", job, "read and written by the user's own program, as the user")


@pytest.mark.long
def test_with_kerberos_and_without_the_key(secure: YarnPlace, home: Path) -> None:
    spec = job_that_reads(secure, home)
    spec["env"]["HADOOP_CONF_DIR"] = str(secure.cluster.layout.conf("client"))
    job = secure.run(spec)

    assert "Client cannot authenticate via:[TOKEN, KERBEROS]" in job.failed()


@pytest.mark.long
def test_without_kerberos(yarn: YarnPlace, home: Path) -> None:
    job = yarn.run(job_that_reads(yarn, home, hadoop=True))

    job.succeeded()
    log = job.log("worker:0")
    assert "two words" in log.splitlines()
    assert f"hadoop: no tokens, user {USER}; configuration of the ResourceManager; class path of" in log


def test_on_this_machine_it_is_the_users_own(
    local: LocalPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "core-site.xml").write_text("<configuration><property/></configuration>")
    own = {contract.ENV_TICKET: "FILE:/tmp/krb5cc_mine", "HADOOP_CONF_DIR": str(tmp_path / "conf")}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    show = 'echo "$KRB5CCNAME $HADOOP_CONF_DIR token=$HADOOP_TOKEN_FILE_LOCATION"'
    tasks = {"worker": {"memory": "128MiB", "command": show}}

    job = local.run({"hadoop": True, "tasks": tasks})
    job.succeeded()
    assert f"FILE:/tmp/krb5cc_mine {tmp_path}/conf token=" in job.log("worker:0").splitlines()
    assert "hadoop: no tokens" in job.log("worker:0")

    job = local.run({"tasks": tasks})
    job.succeeded()
    assert f" {tmp_path}/conf token=" in job.log("worker:0").splitlines()
