"""Tables and jobs, on a terminal and in a pipe."""

from __future__ import annotations

from argparse import Namespace

import pytest

from tests.cli.conftest import Tony
from tony_provider.cli.command import command, print_rows, print_whole, say
from tony_provider.cli.show_status import job_table
from tony_provider.cluster.errors import ClusterError
from tony_provider.hooks.tony import TonyHook

URI = f"hdfs://nameservice/user/alice/.tony/jobs/{'long-' * 60}name/applications/application_1_0001"


def test_a_path_in_a_pipe_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_whole(job_table("application_1_0001", None, None, URI))
    print_rows([{"what": "chain", "directory": URI, "size": "1 B"}], "table")
    job, table = (line for line in capsys.readouterr().out.splitlines() if "hdfs://" in line)
    assert job.split() == ["directory", URI]
    assert [cell.strip() for cell in table.split("|")] == ["chain", URI, "1 B"]


def test_a_path_on_a_terminal_is_folded_and_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")
    print_whole(job_table("application_1_0001", None, None, URI))
    told = capsys.readouterr().out
    assert "…" not in told
    assert URI in "".join(line.split()[-1] for line in told.splitlines()[2:])


def test_a_row_with_ids_and_paths_is_not_folded_where_it_is_to_be_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "80")
    row = {"what": "chain", "directory": URI, "size": "1 B"}
    print_rows([row], "table")
    assert URI not in capsys.readouterr().out
    print_rows([row], "table", whole=True)
    assert URI in capsys.readouterr().out


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_data_for_programs_are_not_padded(capsys: pytest.CaptureFixture[str], output: str) -> None:
    print_rows([{"what": "chain", "directory": URI}], output)
    assert max(map(len, capsys.readouterr().out.splitlines())) < len(URI) + 100


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "No job is running or waiting; --ended lists those that have ended"),
        (["--user", "bob", "--queue", "ml"], "No job of bob in queue ml is running or waiting; --ended lists"),
        (["--ended"], "The cluster has no record of a job\n"),
    ],
)
def test_where_there_is_nothing_to_list_it_says_how_to_see_more(
    tony: Tony, local: TonyHook, arguments: list[str], expected: str
) -> None:
    said = tony("list", *arguments)
    assert (said.code, said.error) == (0, "")
    assert said.out.startswith(expected)
    assert tony("list", *arguments, "--output", "json").out.strip() == "[]"


def test_what_anybody_may_name_an_application_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """Seen: an application of a stranger's named ``[/x]`` broke the list of all."""
    for name in ("[/x]", "[bold red]SUCCEEDED[/]", "[link=http://elsewhere/]click[/link]", ":skull:"):
        print_rows([{"name": name}], "table")
        assert name in capsys.readouterr().out


def test_no_answer_holds_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    say("[b]model[/b] in hdfs://n/a\x1b]0;owned\x07\u202eb\x1b[31m\nnext\tline")
    assert capsys.readouterr().out == "[b]model[/b] in hdfs://n/ab\nnext\tline\n"


def test_no_error_of_a_command_holds_what_a_terminal_obeys() -> None:
    @command
    def fails(_: Namespace) -> None:
        raise ClusterError("worker\x1b[2J:0 failed")

    with pytest.raises(SystemExit, match="worker:0 failed"):
        fails(Namespace(verbose=False))
