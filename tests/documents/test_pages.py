"""Links lead somewhere, examples are those of this code and of this Airflow, and it all can be rendered."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.providers.common.compat.sdk import BaseOperator, BaseSensorOperator

from tests.documents.pages import PAGES, ROOT, anchors, blocks, commands, links, name
from tony_provider.job_files.parameters import split_parameters
from tony_provider.job_files.templates import check_names, rendered_job
from tony_provider.macros import quote
from tony_provider.operators.stale_models import TonyStaleModels
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.retry_policy import TonyRetryPolicy
from tony_provider.runtime.parsing.parse import load_source, parse_job
from tony_provider.sensors.tony import TonyHeartbeatSensor, TonyJobSensor, TonySensor

EXAMPLES = [
    pytest.param(page, code, id=f"{name(page)}-{n}") for page in PAGES for n, code in enumerate(blocks(page, "python"))
]
JOBS = [(page, job) for page in PAGES for job in blocks(page, "yaml") if re.search("^framework:", job, re.MULTILINE)]
CODE = ("benchmarks", "dags", "tests", "tony_provider")
COMMANDS = [(name(page), line) for page in PAGES for line in commands(page) if line.startswith("airflow ")]
NOT_INSTALLED = {"airflow.providers.apache.spark"}  # it installs all of Spark
# Whose arguments are looked at, and whose more they take.
CALLED: dict[str, tuple[type, ...]] = {
    "TonyTrainOperator": (TonyTrainOperator, BaseOperator),
    "TonyTrainOperator.partial": (TonyTrainOperator, BaseOperator),
    "task.tony": (TonyTrainOperator, BaseOperator),
    "TonyJobSensor": (TonyJobSensor, TonySensor, BaseSensorOperator, BaseOperator),
    "TonyHeartbeatSensor": (TonyHeartbeatSensor, TonySensor, BaseSensorOperator, BaseOperator),
    "TonyRetryPolicy": (TonyRetryPolicy,),
    "TonyStaleModels": (TonyStaleModels, BaseOperator),
}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_map_names_modules_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w./>])((?:\w+/)*\w+\.py)`", text))
    files = [path.relative_to(ROOT).as_posix() for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    assert {each for each in named if not any(f"/{path}".endswith(f"/{each}") for path in files)} == set()


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_examples_import_and_call_what_there_is(page: Path, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in ("airflow", "tony_provider"):
            if ".".join(str(node.module).split(".")[:4]) in NOT_INSTALLED:
                continue
            module = importlib.import_module(str(node.module))
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []
        elif isinstance(node, ast.Call) and (kinds := CALLED.get(ast.unparse(node.func))):
            known = {argument for kind in kinds for argument in inspect.signature(kind).parameters}
            assert [each.arg for each in node.keywords if each.arg not in known] == []


@pytest.mark.parametrize(("page", "job"), JOBS)
def test_jobs_are_right(page: Path, job: str) -> None:
    parameters, alone = split_parameters(load_source(job))
    check_names(alone, parameters)
    some = {name: "2026-01-01" if each.is_required else each.default for name, each in parameters.items()}
    parse_job(rendered_job(alone, some, quote) if parameters else alone)


@pytest.fixture(scope="module")
def airflow() -> ArgumentParser:
    return get_parser()


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_are_those_of_this_airflow(page: str, line: str, airflow: ArgumentParser) -> None:
    arguments = shlex.split(re.sub(r"(?<=\s)#.*", "", line))
    airflow.parse_args(arguments[1:])  # exits, and says why, where it does not know one


def test_they_can_be_rendered_and_readers_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    """What `make docs` does."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "-b", "html", "-c", "docs", "-d"]
    done = subprocess.run(
        [*command, str(tmp_path / "doctrees"), ".", str(tmp_path / "docs")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = list((tmp_path / "docs").rglob("*.html"))
    assert len(pages) > len(PAGES)
    assert [loaded for page in pages for loaded in _loaded(page.read_text()) if "//" in loaded] == []


def _loaded(html: str) -> Iterator[str]:
    for tag in re.findall(r"<(?:script|link|img|iframe|style)\b[^>]*>", html):
        yield from re.findall(r"\b(?:src|href)=\"([^\"]*)\"", tag)
