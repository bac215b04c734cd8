"""The errors of talking to Hadoop.

An exception that a Hadoop server answers with is a RemoteError, of the subclass that belongs to its Java class; what
fails on the way (connection, authentication, a malformed frame, a deadline) has a type of its own.
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
    """Bytes are not a token file or a token, or credentials lack what is asked for."""


class RpcError(HadoopError):
    """A call to a Hadoop server did not give an answer of the promised kind."""


class RpcProtocolError(RpcError):
    """The peer sent what Hadoop RPC 9 does not allow, or what cannot be read."""


class RpcConnectionError(RpcError):
    """The server cannot be reached, or the connection was lost."""


class RpcTimeout(RpcError):
    """No answer came before the deadline. The server may still carry the call out."""


class RpcAuthenticationError(RpcError):
    """The two sides cannot agree on how to authenticate, or the server failed to prove that it knows the token."""


@attrs.define(eq=False)
class RemoteError(RpcError):
    """An exception that the server answered with.

    ``java_class`` is its full name, ``message`` its text, ``trace`` the Java stack trace where the server sent one.
    """

    java_class: str
    message: str
    trace: str = attrs.field(default="", repr=False)

    # The names of the Java exceptions that become this type.
    java_classes: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        name = self.java_class.rpartition(".")[2]
        return f"{name}: {self.message}" if self.message else name


_YARN = "org.apache.hadoop.yarn.exceptions."


class ApplicationMasterNotRegistered(RemoteError):
    """The ResourceManager was restarted and does not know this application master.

    Register again, start from response_id 0, repeat every outstanding ask.
    """

    java_classes = (_YARN + "ApplicationMasterNotRegisteredException",)


class ApplicationAttemptNotFound(RemoteError):
    """The ResourceManager does not know this attempt, or has ended it: stop."""

    java_classes = (_YARN + "ApplicationAttemptNotFoundException", _YARN + "ApplicationNotFoundException")


class InvalidApplicationMasterRequest(RemoteError):
    """An application master registered twice, or sent a response_id that the ResourceManager did not expect."""

    java_classes = (_YARN + "InvalidApplicationMasterRequestException",)


class InvalidResourceRequest(RemoteError):
    """An ask can never be granted: larger than the maximum, an unknown resource, a label that the queue may not use."""

    java_classes = (
        _YARN + "InvalidResourceRequestException",
        _YARN + "InvalidLabelResourceRequestException",
        _YARN + "SchedulerInvalidResoureRequestException",  # spelled so in Hadoop
        _YARN + "ResourceNotFoundException",
    )


class NodeManagerNotYetReady(RemoteError):
    """The NodeManager has not registered with the ResourceManager yet (Hadoop 2): try again soon."""

    java_classes = (_YARN + "NMNotYetReadyException",)


class InvalidToken(RemoteError):
    """The token is unknown to the server, or too old."""

    java_classes = ("org.apache.hadoop.security.token.SecretManager$InvalidToken",)


class SaslRefused(RemoteError):
    """The server ended the authentication."""

    java_classes = ("javax.security.sasl.SaslException",)


class Standby(RemoteError):
    """This server is the standby of its pair; the call was not carried out."""

    java_classes = ("org.apache.hadoop.ipc.StandbyException",)


class Retriable(RemoteError):
    """The server cannot do it now (starting, too busy); the call was not carried out."""

    java_classes = ("org.apache.hadoop.ipc.RetriableException", "org.apache.hadoop.ipc.ObserverRetryOnActiveException")


_BY_JAVA_CLASS: dict[str, type[RemoteError]] = {
    java_class: error_type for error_type in RemoteError.__subclasses__() for java_class in error_type.java_classes
}


def remote_error(java_class: str, text: str, trace: Optional[str] = None) -> RemoteError:
    """The error for a Java exception, a plain RemoteError for a class without a type of its own.

    ``text`` is what the server sent: the message, often as ``class: message`` followed by the stack trace.
    """
    message, at, _stack = text.partition("\n\tat ")
    if message.startswith(java_class + ":"):
        message = message[len(java_class) + 1 :]
    elif message == java_class:
        message = ""
    error_type = _BY_JAVA_CLASS.get(java_class, RemoteError)
    return error_type(java_class, message.strip(), trace or (text if at else ""))


def serialized_error(exception: SerializedExceptionProto) -> RemoteError:
    """The error for an exception inside an answer, such as the ``failed_requests`` of a NodeManager."""
    return remote_error(exception.class_name, exception.message, exception.trace)
