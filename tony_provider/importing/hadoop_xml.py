"""Hadoop's configuration in XML, such as tony.xml, read without what XML can do to its reader."""

from __future__ import annotations

from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from tony_provider.importing.imported import NotImportable

_DEEPEST = 20  # elements within each other: Hadoop's have three, and thousands take minutes


def read_properties(text: str, source: str) -> dict[str, str]:
    """The properties by name; of one that comes twice the last. Raises NotImportable.

    Document types, and the entities that they have, are refused: a file of some hundred bytes could fill a machine's
    memory, or read its other files.
    """
    try:
        parser = DefusedXMLParser(target=_ShallowTree(), forbid_dtd=True)
        parser.feed(text)
        root = parser.close()
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


class _ShallowTree(TreeBuilder):
    """The elements, as long as they are not within each other without end."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: str, attributes: dict[str, str]) -> Element:  # type: ignore[override]
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"elements are nested more than {_DEEPEST} deep")
        return super().start(tag, attributes)

    def end(self, tag: str) -> Element:
        self._depth -= 1
        return super().end(tag)


def _text(element: Element, tag: str) -> str:
    found = element.find(tag)
    return (found.text or "").strip() if found is not None else ""
