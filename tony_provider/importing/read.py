"""Reading a job of whatever system it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tony_provider.importing import hbox, skein, tf_yarn, tony, torchx, yarn_services
from tony_provider.importing.imported import Imported, NotImportable
from tony_provider.importing.keys import BadValue
from tony_provider.importing.settle import settled
from tony_provider.importing.source import Source, source_of
from tony_provider.importing.system import System
from tony_provider.importing.unread import UNREAD

SYSTEMS: Sequence[System] = (
    tony.SYSTEM,
    skein.SYSTEM,
    yarn_services.SYSTEM,
    hbox.SYSTEM,
    tf_yarn.SYSTEM,
    torchx.SYSTEM,
)


def imported_from(
    words: Sequence[str],
    *,
    system: str | None = None,
    command: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> Imported:
    """The job that a file, or the call in ``words``, is in its own system: the one that it looks like, or ``system``.

    ``command`` is for the task types whose own nobody knows, ``given`` is laid over the job. Raises NotImportable.
    """
    source = source_of(words)
    of = _system(source, system)
    try:
        draft = of.read(source)
    except BadValue as error:
        raise NotImportable(f"{source.told}: {error}") from error
    except RecursionError as error:
        raise NotImportable(f"{source.told}: nested too deeply") from error
    return settled(draft, of.title, source.told, command=command, given=given or {})


def _system(source: Source, name: str | None) -> System:
    if name is not None:
        return next(each for each in SYSTEMS if each.name == name)
    found = [each for each in SYSTEMS if each.knows(source)]
    if len(found) == 1:
        return found[0]
    for each in UNREAD if not found else ():
        if each.knows(source):
            raise NotImportable(f"{source.told} {each.why}, and is not read; {each.page}")
    kinds = "\n".join(f"  {each.name}: {each.takes}" for each in SYSTEMS)
    what = "is none of what is read here" if not found else f"could be of {' or '.join(each.title for each in found)}"
    raise NotImportable(f"{source.told} {what}; say which with --from:\n{kinds}")
