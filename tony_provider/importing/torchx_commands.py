"""What a role of TorchX runs: the program behind torchrun, and words for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

import attrs

from tony_provider.importing.draft import Draft
from tony_provider.importing.options import read_options

_TORCHRUN = ("torchrun", "torch.distributed.run")
MACROS = {"app_id": "$TONY_APPLICATION_ID", "replica_id": "$TONY_TASK_INDEX", "img_root": ".", "base_img_root": "."}
MACRO = re.compile(r"\$\{(\w+)\}")
FLAGS = ("dryrun", "wait", "log", "tee_logs", "stdin")  # of torchx run
_MODULE, _NO_PYTHON = ("m", "module"), ("no-python", "no_python")
_FLAGS_OF_TORCHRUN = (*_MODULE, *_NO_PYTHON, "run-path", "run_path", "standalone")


@attrs.frozen
class RoleCommand:
    """The words of a role's command, and how many processes run it in each container."""

    words: Sequence[str]
    processes: str = "1"
    is_torchrun: bool = False


def command_of(draft: Draft, key: str, entrypoint: str, args: Sequence[str]) -> RoleCommand:
    """What is behind torchrun, which is not needed; anything else as it is."""
    given = [entrypoint, *args]
    if PurePosixPath(entrypoint).name in ("bash", "sh") and len(args) == 2 and args[0] == "-c":
        try:
            inner = shlex.split(args[1].replace("$$", "$"))
        except ValueError:
            inner = []
        given = inner if _torchrun(inner) is not None else given
    if (place := _torchrun(given)) is None:
        return RoleCommand(given)
    options = read_options(given[place + 1 :], flags=_FLAGS_OF_TORCHRUN)
    program, flags = list(options.rest), {name for name, _ in options.given}
    processes = options.last("nproc_per_node") or options.last("nproc-per-node") or "1"
    if processes in ("auto", "gpu"):
        processes = "gpus"
    if not program:
        draft.leave(f"{key}.args", "torchrun is given no program", " ".join(given))
    words = ["python", *(["-m"] if flags.intersection(_MODULE) else []), *program]
    return RoleCommand(program if flags.intersection(_NO_PYTHON) else words, processes, is_torchrun=True)


def _torchrun(words: Sequence[str]) -> int | None:
    """The place of torchrun's name in a command."""
    for index, word in enumerate(words[:3]):
        if PurePosixPath(word).name in _TORCHRUN:
            return index
    return None


def shell_word(text: str) -> str:
    """One word for a shell, with TorchX's macros as our variables."""
    if not MACRO.search(text):
        return shlex.quote(text.replace("$$", "$"))
    escaped = re.sub(r'(["\\`])', r"\\\1", text)
    filled = MACRO.sub(lambda found: MACROS.get(found[1], found[0]), escaped)
    return filled if re.fullmatch(r"[\w$./=:-]+", filled) else f'"{filled}"'
