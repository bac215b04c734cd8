"""A job file as a person would write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import yaml

from tony_provider.runtime.text import one_line

_WIDTH = 116  # of comments
_ONE_LINE = 1 << 20  # characters: commands are as long as they are


class _Dumper(yaml.SafeDumper):
    """YAML without anchors, lists indented below their key, and text of several lines as it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_shown = all(line.isprintable() for line in text.split("\n"))  # YAML parsers change line ends such as NEL
    style = ("|" if "\n" in text else None) if is_shown else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def job_text(job: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """The job in YAML, below ``comments``, each a paragraph."""
    head = "".join(f"{line}\n" for each in comments for line in comment(each))
    return head + yaml.dump(dict(job), Dumper=_Dumper, sort_keys=False, width=_ONE_LINE, allow_unicode=True)


def comment(text: str) -> list[str]:
    """Return a paragraph as lines of a comment; the lines below a hyphen are indented."""
    text = one_line(text)  # some characters end a comment in YAML, although Python does not take them for line ends
    hanging = "#   " if text.startswith("- ") else "# "
    lines = wrap(text, _WIDTH, initial_indent="# ", subsequent_indent=hanging, break_long_words=False)
    return lines or ["#"]
