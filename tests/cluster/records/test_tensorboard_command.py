from __future__ import annotations

import shlex

from airflow.cli.cli_parser import get_parser

from tony_provider.cluster.records.summary import tony_command

IDS = ["application_1700000000000_0001", "application_1700000000000_0002"]


def test_the_command_is_one_that_airflow_reads_and_no_more_than_that() -> None:
    assert tony_command("tensorboard", *IDS) == f"airflow tony tensorboard {' '.join(IDS)}"
    line = tony_command("tensorboard", *IDS, tony_conn_id="my cluster; rm -rf ~", proxy_user="al'ice")
    args = get_parser().parse_args(shlex.split(line)[1:])
    assert (args.application_id, args.conn_id, args.proxy_user) == (IDS, "my cluster; rm -rf ~", "al'ice")
    assert args.subcommand == "tensorboard"
