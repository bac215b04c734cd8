"""The documents say what the code says."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

from tony_provider import exceptions
from tony_provider.hooks.connection import missing_connection
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def first_column(document: str, heading: str) -> list[str]:
    """The names in the first column of the first table below a heading."""
    section = (ROOT / "docs" / document).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_every_exception_is_documented() -> None:
    public = [name for name, kind in vars(exceptions).items() if getattr(kind, "__module__", "") == exceptions.__name__]
    assert set(public) <= set(first_column("troubleshooting/errors.md", "Exceptions"))


def test_the_recipes_name_files_that_are_there() -> None:
    recipes = (ROOT / "CONTRIBUTING.md").read_text().split("## Recipes\n")[1].split("\n## ")[0]
    named = re.findall(r"`([\w/]+\.(?:py|proto|md))`", recipes)
    assert len(named) > 30
    assert [path for path in named if not any((ROOT / top / path).exists() for top in ("", "tony_provider"))] == []


def test_what_is_said_to_be_stable_is_there() -> None:
    promised = (ROOT / "docs" / "reference" / "stable.md").read_text().split("Everything else")[0]
    for path in re.findall(r"`(tony_provider\.[\w.]+)`", promised):
        assert pkgutil.resolve_name(path), path
    for promising, ending, owner in (("TonyHook`:", " (its", TonyHook), ("return: ", " | ", TonyJob)):
        (line,) = (line for line in promised.splitlines() if promising in line)
        names = re.findall(r"`(\w+)`", line.split(promising)[1].split(ending)[0])
        assert len(names) > 5
        assert [name for name in names if not hasattr(owner, name)] == []


def test_the_documents_add_connections_as_the_error_for_a_missing_one_says() -> None:
    tutorial = (ROOT / "docs" / "get-started" / "tutorial.md").read_text()
    commands = re.findall(r"airflow connections add (?:[^\n]*\\\n)*[^\n]*", missing_connection("tony_default"))
    assert len(commands) == 2
    for command, text in zip(commands, (README, tutorial), strict=True):
        said = command.replace("/var/lib/tony", "/tmp/tony-tutorial/jobs")
        assert " ".join(said.split()) in " ".join(text.split())
