"""WebHDFS's answers, and its exceptions turned into ours.

The JSON forms and the HTTP codes are those of Hadoop's "WebHDFS REST API", sections "RemoteException JSON Schema" and
"Error Responses"; the Java exceptions are those that Hadoop 2.10 to 3.4 throw.
"""

from __future__ import annotations

import json
import re
from typing import Any, Optional

import attrs

from tony_provider.runtime.error_page import said_by_page
from tony_provider.runtime.hadoop.gss_reasons import explained, reason
from tony_provider.runtime.storage import errors


class NoDataNode(errors.StorageUnreachable):
    """The NameNode knows of no DataNode to send us to; one that has just started may yet hear of some."""


_BY_EXCEPTION: dict[str, type[errors.StorageError]] = {
    "FileNotFoundException": errors.StorageNotFound,
    "FileAlreadyExistsException": errors.StorageExists,
    "AlreadyBeingCreatedException": errors.StorageExists,
    "PathIsNotEmptyDirectoryException": errors.StorageNotEmpty,
    "ParentNotDirectoryException": errors.StorageNotADirectory,
    "PathIsNotDirectoryException": errors.StorageNotADirectory,
    "AccessControlException": errors.StoragePermissionDenied,
    "AuthorizationException": errors.StoragePermissionDenied,
    "InvalidToken": errors.StorageAuthError,
    "SecurityException": errors.StorageAuthError,
    "AuthenticationException": errors.StorageAuthError,
    "BlockMissingException": errors.StorageUnreachable,
    "DSQuotaExceededException": errors.StorageNoSpace,
    "NSQuotaExceededException": errors.StorageNoSpace,
    "QuotaExceededException": errors.StorageNoSpace,
    "QuotaByStorageTypeExceededException": errors.StorageNoSpace,
    "InvalidPathException": errors.StorageInvalidPath,
    "PathComponentTooLongException": errors.StorageInvalidPath,
    "UnsupportedOperationException": errors.StorageUnsupported,
}
# Plain IOExceptions that only their words tell apart.
_BY_WORDS: list[tuple[str, type[errors.StorageError]]] = [
    ("Path is not a file", errors.StorageIsADirectory),
    ("Invalid path name", errors.StorageInvalidPath),
    ("Invalid file name", errors.StorageInvalidPath),
    ("could only be written to 0 of", errors.StorageNoSpace),
    ("could only be replicated to 0 nodes", errors.StorageNoSpace),
    ("not allowed to do 'DECRYPT_EEK'", errors.StorageZoneClosed),  # by the key server's own lists
    ("not authorized to perform [DECRYPT_EEK]", errors.StorageZoneClosed),  # by those of a key
    ("Failed to find datanode", NoDataNode),
    ("No active nodes contain this block", NoDataNode),
    ("Support for ACLs has been disabled", errors.StorageUnsupported),  # dfs.namenode.acls.enabled
    ("is not allowed to impersonate", errors.StoragePermissionDenied),  # a SecurityException in 2.10
    # By class an AccessControlException, when the one who asks is not the superuser.
    ("(is not a directory)", errors.StorageNotADirectory),
    ("rename destination directory is not empty", errors.StorageNotEmpty),
    ("must both be directories", errors.StorageExists),
    ("is a directory or file under source", errors.StorageInvalidPath),
]
# Said by a NameNode that is not the active one or not ready: ask again, or ask another.
_NOT_NOW = {"StandbyException", "RetriableException", "SafeModeException", "ObserverRetryOnActiveException"}
_BUSY_CODES = {502, 503, 504}
# Said by a DataNode whose call to the NameNode failed; the words are those of Hadoop's NetUtils.wrapException.
_NAMENODE_AWAY = re.compile(
    "failed on (connection|socket|socket timeout) exception|Failed on local exception|End of File Exception between"
)
_NO_MATTER_OF_TIME = re.compile("AccessControlException|Sasl")


class NotNow(Exception):  # noqa: N818 (it is no error when another server answers)
    """The server could not answer; another one, or the same one later, may."""


@attrs.frozen
class Answer:
    """An HTTP answer of a NameNode or DataNode."""

    code: int
    location: Optional[str]  # where a DataNode is to be asked
    body: bytes
    authenticate: Optional[str] = None  # what the server says for itself, with Kerberos
    date: Optional[str] = None  # the time by the server's clock

    @property
    def needs_proof(self) -> bool:
        """Whether it counts for something: refusals come before the server has proved itself, and errors of a gateway

        or of the web server are none of Hadoop's.
        """
        return self.code not in (401, 403) and self.code < 500

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ValueError when it is none."""
        try:
            value = json.loads(self.body)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 (as json.loads does)
        return value


def check(answer: Answer, uri: str, operation: str) -> None:
    """Check an answer: success (200, 201) and redirection (307) pass.

    Raises NotNow or the StorageError that the answer stands for.
    """
    if answer.code in (200, 201, 307):
        return
    exception, message = _remote_exception(answer)
    if _is_passing(exception, message, answer.code):
        raise NotNow(f"{exception or answer.code}: {_first_line(message)}")
    raise _kind(exception, message, answer.code)(uri, operation, _problem(exception, message, answer.code))


def _is_passing(exception: str, message: str, code: int) -> bool:
    if exception in _NOT_NOW or "StandbyException" in message or (not exception and code in _BUSY_CODES):
        return True
    return bool(_NAMENODE_AWAY.search(message)) and not _NO_MATTER_OF_TIME.search(message)


def _kind(exception: str, message: str, code: int) -> type[errors.StorageError]:
    for words, kind in _BY_WORDS:
        if words in message:
            return kind
    if exception in _BY_EXCEPTION:
        return _BY_EXCEPTION[exception]
    # Hadoop's authentication filter answers before WebHDFS does, with a page of HTML.
    return errors.StorageAuthError if not exception and code in (401, 403) else errors.StorageError


def _problem(exception: str, message: str, code: int) -> str:
    if exception:
        return f"HDFS says {exception}: {explained(_first_line(message))}"
    if code in (401, 403) and (known := reason(message)):
        return f"the server does not accept our Kerberos ticket: {known.meaning} ({code}: {message}); {known.remedy}"
    if code in (401, 403):
        return f"the server wants Kerberos or a delegation token, or does not accept ours ({code}: {message})"
    return f"the server answered {code} without WebHDFS's words; is this address a NameNode's? It said: {message}"


def _remote_exception(answer: Answer) -> tuple[str, str]:
    """The Java exception's short name (empty when the answer is not WebHDFS's) and its message."""
    try:
        remote = answer.json["RemoteException"]
        # A nested class comes as SecretManager$InvalidToken in the class name only.
        name = str(remote.get("javaClassName") or remote["exception"])
        return name.rsplit(".", 1)[-1].rsplit("$", 1)[-1], str(remote.get("message", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", said_by_page(answer.body)[:200]


def _first_line(message: str) -> str:
    """Hadoop appends stack traces."""
    return message.strip().split("\n", 1)[0]
