"""Hadoop's configuration in XML, such as tony.xml, read without what XML can do to its reader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from tony_provider.importing.imported import NotImportable

_REFERENCE = re.compile(r"\$\{([^}$\s]+)\}")
_OF_THE_CLIENT = re.compile(r"\$\{(?:user|java|os|env)\.[^}$\s]+\}")
_MOST_FILLED = 20  # references in one value, as Hadoop has it
_LONGEST = 1 << 16  # letters of a value in which something is filled in


def read_properties(text: str, source: str) -> dict[str, str]:
    """The properties by name; of one that comes twice the last. Raises NotImportable.

    Document types, and the entities that they have, are refused: a file of some hundred bytes could fill a machine's
    memory, or read its other files.
    """
    try:
        root = fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise NotImportable(
            f"{source}: has a document type or entities, which are not read, since they can fill the memory or open "
            "other files; write their values in its properties"
        ) from error
    except (ParseError, ValueError, RecursionError) as error:
        raise NotImportable(f"{source}: is no XML ({error})") from error
    if root.tag != "configuration":
        raise NotImportable(f"{source}: is no configuration of Hadoop's: its first element is {root.tag!r}")
    if any(each.tag.endswith("}include") for each in root.iter()):
        raise NotImportable(f"{source}: includes another file, which is not read; write its properties here")
    properties = {}
    for each in root.iter("property"):
        name, value = _text(each, "name"), _text(each, "value")
        if not name:
            raise NotImportable(f"{source}: a property has no name")
        properties[name] = value
    return properties


def filled_in(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with the values of others in place of ``${their.name}``, as Hadoop reads them."""
    return {name: _filled(value, properties) for name, value in properties.items()}


def _filled(value: str, properties: Mapping[str, str]) -> str:
    for _ in range(_MOST_FILLED):
        found = next((each for each in _REFERENCE.finditer(value) if each[1] in properties), None)
        if found is None or len(value) > _LONGEST:
            break
        value = f"{value[: found.start()]}{properties[found[1]]}{value[found.end() :]}"
    return value


def of_the_client(value: str) -> str | None:
    """What of a value only Hadoop's client would fill in, such as ``${user.name}``; None: nothing."""
    found = _OF_THE_CLIENT.search(value)
    return found[0] if found else None


def _text(element: Element, tag: str) -> str:
    found = element.find(tag)
    return (found.text or "").strip() if found is not None else ""
