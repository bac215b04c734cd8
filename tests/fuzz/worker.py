"""The process that feeds parsers: ``python -m tests.fuzz.worker SEED INPUTS PLACE FIRST PARSER…``.

PLACE is a file in which it keeps which parser (by its place among those named) it feeds, and with which input: from
FIRST on for the first of them. Findings are lines of JSON on standard output. What an input is can be told from the
seed, its parser's name and its number alone.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import resource
import struct
import sys
import traceback
import warnings
from pathlib import Path
from random import Random

from tests.fuzz.mutate import grown
from tests.fuzz.parsers import Parser, parser_of

PLACE = struct.Struct("<qq")
MEMORY = 768 << 20  # bytes of addresses beyond those of the process when it begins


def made(parser: Parser, seed: int, number: int) -> bytes:
    """The input of that number."""
    random = Random(f"{seed} {parser.name} {number}")
    inner = grown(random, parser.seeds())
    sealed = parser.seal(inner)
    return grown(random, [sealed]) if parser.is_sealed and random.random() < 0.1 else sealed


def main() -> None:
    """Feed the parsers that are named."""
    seed, inputs, place, first, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5:]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (pages + MEMORY, pages + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Path(place).open("r+b") as file, mmap.mmap(file.fileno(), PLACE.size) as at:
        for index, name in enumerate(names):
            for number in range(first if index == 0 else 0, inputs):
                at[:] = PLACE.pack(index, number)
                feed(parser_of(name), seed, number)
        at[:] = PLACE.pack(len(names), 0)


def feed(parser: Parser, seed: int, number: int) -> None:
    """One input; what nobody has declared is told on standard output."""
    data = made(parser, seed, number)
    try:
        parser.run(data)
    except parser.declared:
        return
    except Exception as error:  # noqa: BLE001 - what nobody has declared is what is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        found = {
            "parser": parser.name,
            "number": number,
            "what": f"{type(error).__name__}: {str(error)[:200]!a}",
            "where": f"{Path(where.filename).name}:{where.lineno}",
            "trace": traceback.format_exc()[-3000:],
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
