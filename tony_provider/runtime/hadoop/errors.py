"""Errors of Hadoop clients.

RemoteError and its subclasses represent Java exceptions that a Hadoop server sent; the subclass depends on the Java
class. The client itself raises all other errors, for example if a connection is lost or a deadline has passed.
"""

# ruff: noqa: N818 - these names say what happened, as Hadoop's own do

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Optional

import attrs

if TYPE_CHECKING:
    from tony_provider.runtime.hadoop.proto.yarn_pb2 import SerializedExceptionProto


class HadoopError(Exception):
    """Base of every error of this package."""


class CredentialsError(HadoopError):
    """A token or token file is malformed, or credentials lack the requested token."""


class RpcError(HadoopError):
    """A call to a Hadoop server failed, or its answer has the wrong type."""


class RpcProtocolError(RpcError):
    """The server sent data that Hadoop RPC version 9 does not allow, or that cannot be parsed."""


class RpcConnectionError(RpcError):
    """The server cannot be reached, or the connection was lost."""


class RpcTimeout(RpcError):
    """No answer arrived before the deadline. The server may still execute the call."""


class RpcAuthenticationError(RpcError):
    """Client and server support no common authentication, or the server did not prove that it knows the token."""


@attrs.define(eq=False)
class RemoteError(RpcError):
    """Java exception that the server sent.

    ``java_class`` is the full name of the exception's class. ``trace`` is the stack trace, or "" if there is none.
    """

    java_class: str
    message: str
    trace: str = attrs.field(default="", repr=False)

    # full names of the Java exceptions that this Python class represents
    java_classes: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        name = self.java_class.rpartition(".")[2]
        return f"{name}: {self.message}" if self.message else name


_YARN = "org.apache.hadoop.yarn.exceptions."


class ApplicationMasterNotRegistered(RemoteError):
    """The ResourceManager was restarted and does not know this application master.

    The application master must register again, start from response_id 0, and send all outstanding requests again.
    """

    java_classes = (_YARN + "ApplicationMasterNotRegisteredException",)


class ApplicationAttemptNotFound(RemoteError):
    """The ResourceManager does not know this attempt, or has ended it. The application master must stop."""

    java_classes = (_YARN + "ApplicationAttemptNotFoundException", _YARN + "ApplicationNotFoundException")


class InvalidApplicationMasterRequest(RemoteError):
    """An application master registered twice, or sent an unexpected response_id."""

    java_classes = (_YARN + "InvalidApplicationMasterRequestException",)


class InvalidResourceRequest(RemoteError):
    """YARN can never satisfy a request: too large, an unknown resource, a label that the queue may not use."""

    java_classes = (
        _YARN + "InvalidResourceRequestException",
        _YARN + "InvalidLabelResourceRequestException",
        _YARN + "SchedulerInvalidResoureRequestException",  # spelled so in Hadoop
        _YARN + "ResourceNotFoundException",
    )


class NodeManagerNotYetReady(RemoteError):
    """The NodeManager has not registered with the ResourceManager yet (only Hadoop 2). Retry soon."""

    java_classes = (_YARN + "NMNotYetReadyException",)


class InvalidToken(RemoteError):
    """The token is unknown to the server, or has expired."""

    java_classes = ("org.apache.hadoop.security.token.SecretManager$InvalidToken",)


class SaslRefused(RemoteError):
    """The server rejected the authentication."""

    java_classes = ("javax.security.sasl.SaslException",)


class Standby(RemoteError):
    """This server is on standby, and did not execute the call."""

    java_classes = ("org.apache.hadoop.ipc.StandbyException",)


class Retriable(RemoteError):
    """The server is temporarily unable to serve (starting, too busy), and did not execute the call."""

    java_classes = ("org.apache.hadoop.ipc.RetriableException", "org.apache.hadoop.ipc.ObserverRetryOnActiveException")


_BY_JAVA_CLASS: dict[str, type[RemoteError]] = {
    java_class: error_type for error_type in RemoteError.__subclasses__() for java_class in error_type.java_classes
}


def remote_error(java_class: str, text: str, trace: Optional[str] = None) -> RemoteError:
    """Return the error for a Java exception, or a plain RemoteError if no subclass represents its Java class.

    ``text``: the exception as the server sent it, often as ``class: message`` followed by the stack trace.
    """
    message, at, _stack = text.partition("\n\tat ")
    if message.startswith(java_class + ":"):
        message = message[len(java_class) + 1 :]
    elif message == java_class:
        message = ""
    error_type = _BY_JAVA_CLASS.get(java_class, RemoteError)
    return error_type(java_class, message.strip(), trace or (text if at else ""))


def serialized_error(exception: SerializedExceptionProto) -> RemoteError:
    """Return the error for an exception inside an answer, such as the ``failed_requests`` of a NodeManager."""
    return remote_error(exception.class_name, exception.message, exception.trace)
