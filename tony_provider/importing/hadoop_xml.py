"""Hadoop's configuration in XML, such as tony.xml, read without what XML can do to its reader."""

from __future__ import annotations

from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from tony_provider.importing.imported import NotImportable


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
    properties = {}
    for each in root.iter("property"):
        name, value = _text(each, "name"), _text(each, "value")
        if not name:
            raise NotImportable(f"{source}: a property has no name")
        properties[name] = value
    return properties


def _text(element: Element, tag: str) -> str:
    found = element.find(tag)
    return (found.text or "").strip() if found is not None else ""
