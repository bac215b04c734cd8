"""URIs of files. As in Hadoop, URIs are literal: nothing is percent-encoded, and # and ? have no special meaning."""

from __future__ import annotations

from urllib.parse import quote

import attrs

from tony_provider.runtime.storage.errors import StorageInvalidPath


@attrs.frozen
class Uri:
    """Parsed URI of a file."""

    scheme: str  # in lower case; "file" for a bare path
    authority: str  # such as a host and port, a nameservice or a bucket; may be empty
    path: str  # absolute, without empty components and without a trailing slash, except for "/"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def name(self) -> str:
        """Last component of the path. Empty for the root."""
        return self.path.rsplit("/", 1)[1]

    @property
    def parent(self) -> Uri:
        """Parent directory; the root is its own parent."""
        return Uri(self.scheme, self.authority, self.path.rsplit("/", 1)[0] or "/")  # faster than attrs.evolve

    def child(self, name: str) -> Uri:
        return Uri(self.scheme, self.authority, f"{self.path.rstrip('/')}/{name}")


def parse(uri: str) -> Uri:
    """Parse a URI or a bare absolute path.

    Drops repeated and trailing slashes. Raises StorageInvalidPath for relative paths and for "." and "..", which HDFS
    does not support and which could lead out of a directory.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        scheme, rest = "file", uri
        if not uri.startswith("/"):
            raise StorageInvalidPath(uri, "use", "it is neither a URI (scheme://…) nor an absolute path")
    authority, _, path = rest.partition("/")
    parts = [part for part in path.split("/") if part]
    if "\0" in uri or any(part in (".", "..") for part in parts):
        raise StorageInvalidPath(uri, "use", 'a path cannot contain ".", ".." or a zero byte')
    return Uri(scheme.lower(), authority, "/" + "/".join(parts))


def join(uri: str, *parts: str) -> str:
    """Return the URI of a path below ``uri``. A part may contain slashes. Raises StorageInvalidPath, see ``parse``."""
    return str(parse("/".join([uri, *parts])))


def encoded(uri: str) -> str:
    """Return the URI percent-encoded, as java.net.URI and YARN's interfaces expect it.

    Raises StorageInvalidPath, see ``parse``.
    """
    parsed = parse(uri)
    return f"{parsed.scheme}://{parsed.authority}{quote(parsed.path, safe='/:@')}"


def parent(uri: str) -> str:
    """Return the URI of the parent directory; the root is its own parent."""
    return str(parse(uri).parent)


def name(uri: str) -> str:
    """Return the last component of a URI's path, or an empty string for the root."""
    return parse(uri).name


def scheme(uri: str) -> str:
    """Return the scheme of a URI; "file" for a bare path."""
    return parse(uri).scheme
