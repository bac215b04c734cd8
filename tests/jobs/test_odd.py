"""Odd but legal: what people give to jobs, and what their processes do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import Place
from tests.jobs.rights import as_an_ordinary_user


def one(command: str, **more: Any) -> dict[str, Any]:
    return {"restart": {"budget": 0}, **more, "tasks": {"worker": {"memory": "128MiB", "command": command}}}


def test_names_and_values_with_every_kind_of_character(place: Place, tmp_path: Path) -> None:
    value = 'it\'s "$HOME" `id` ü \\ % \n second line'
    name = "my data #1 100% ü+&.txt"
    (tmp_path / name).write_text("found\n")
    # In digits: a secret is masked where it is printed as it is.
    command = (
        "python3 -c 'import os, json; print(json.dumps({n: os.environ[n].encode().hex() for n in \"VS\"}))'; cat my*"
    )

    job = place.run(
        one(command, name="süß & <b>'bold'</b> $(id)", env={"V": value}, secrets=["S"], files=[str(tmp_path / name)]),
        secrets={"S": value},
        labels={"run": value},
    )

    job.succeeded()
    assert job.said("worker:0") == dict.fromkeys("VS", value.encode().hex())
    assert "found" in job.log("worker:0")
    assert job.application().name == "süß & <b>'bold'</b> $(id)"
    assert job.events()[0]["labels"] == {"run": value}


def test_output_that_is_no_text(place: Place) -> None:
    job = place.run(one(r"printf '\033[31mred\007 \000 \377\376 \n\xed\xa0\x80 end of it\n' >&2; exit 1"))

    assert job.failed().splitlines()[-1].endswith("end of it")
    assert "end of it" in job.log("worker:0")


def test_much_output_is_cut_at_its_beginning(local: Place) -> None:
    job = local.run(one("yes 0123456789012345678901234567890123456789 | head -c 60000000; echo the end; exit 1"))

    job.failed()
    log = job.log("worker:0")
    assert len(log) < 10_001_000  # with a line that says how much is gone
    assert log.rstrip().endswith("the end")


def test_what_a_process_leaves_running_ends_with_it(local: Place) -> None:
    job = local.run(one("(trap '' TERM HUP; setsid sleep 1000) & echo started"))

    job.succeeded()
    assert_nothing_left(local, job)


@pytest.mark.long
def test_no_free_port(local: Place) -> None:
    tasks = {"worker": {"instances": 7, "memory": "128MiB", "command": "sleep 1000"}}
    job = local.run({"port_range": "20100-20102", "timeouts": {"grace": "1s"}, "tasks": tasks})

    diagnostics = job.failed()
    assert "20100-20102" in diagnostics
    assert_nothing_left(local, job)


def test_a_large_model(place: Place) -> None:
    command = """
    mkdir -p $TONY_MODEL_DIR/variables/deep $TONY_MODEL_DIR/empty
    head -c 30000000 /dev/zero > $TONY_MODEL_DIR/variables/deep/shard
    echo graph > "$TONY_MODEL_DIR/saved model.pb"
    """
    job = place.run(one(command))

    status = job.succeeded()
    assert status.model_dir is not None
    sizes = {entry.name: entry.size for entry in job.hook.storage().list(status.model_dir)}
    assert sizes["saved model.pb"] == 6
    assert job.hook.storage().status(f"{status.model_dir}/variables/deep/shard").size == 30000000


def test_directories_that_a_task_has_locked(local: Place) -> None:
    command = """
    mkdir -p locked/in $TMPDIR/too
    touch locked/in/file $TMPDIR/too/file
    chmod a-w locked/in/file $TMPDIR/too
    chmod a-rwx locked/in
    chmod a-rwx locked
    ! ls locked
    """

    with ThreadPoolExecutor(1, initializer=as_an_ordinary_user) as thread:
        job = thread.submit(local.run, one(command)).result()

    job.succeeded()
    assert_nothing_left(local, job)
