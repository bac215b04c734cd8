"""TonyNotifier: sends a message about a training through any notifier of Airflow."""

from __future__ import annotations

import copy
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseNotifier

from tony_provider.arguments import positive_seconds
from tony_provider.compat import in_thread

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from tony_provider.notifications.message import TrainingMessage

    Sender = Callable[[Context], Any]
    Notifier = BaseNotifier | Sender | type[BaseNotifier] | str

_MEDIA = ("text", "slack", "html", "markdown")  # the values of ``Medium``, which a DAG file must not import


class TonyNotifier(BaseNotifier):
    """Send a message about a training through another notifier: verdict, cause, last lines, metrics and links.

    The templates of the other notifier receive the variable ``tony``, a TrainingMessage:
    ``TonyNotifier(SlackNotifier(text="{{ tony.message }}"))``. Use TonyNotifier for callbacks of tasks and DAGs, and
    for deadlines. See "Send alerts to mail or Slack".

    :param notifier: a notifier from any provider, or a callable. The callable receives the context with the key
        ``tony``. You can also give a notifier class or its import path. TonyNotifier then passes all further arguments
        to this class. For a deadline, give the import path, because the arguments of a deadline's callback must be
        JSON.
    :param task_id: ID of the training task that the message describes; default: the task of the callback. In a DAG
        callback, the default is the DAG's first training that has not succeeded, otherwise its last training. For a
        deadline, this ID is required.
    :param tony_conn_id: ID of the training's connection; default: the connection of the training task, or
        ``tony_default`` for a deadline.
    :param medium: markup language of the message: ``text``, ``slack``, ``html`` or ``markdown``. All texts in ``tony``
        are escaped for this language; default: the language of the notifier's provider, or ``text`` for a function.
    :param lines: maximum number of lines that the message shows from the end of the failed task's output; 0 also omits
        the program's error.
    :param seconds: time limit in seconds for requests to the cluster and its store. The message omits data that are not
        available in time.
    :param context: context of the callback, if Airflow passes the context to the constructor; default: the context of
        the call.
    """

    def __init__(
        self,
        notifier: Notifier,
        *,
        task_id: str | None = None,
        tony_conn_id: str | None = None,
        medium: str | None = None,
        lines: int = 20,
        seconds: float = 20.0,
        context: Context | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(context)
        self.notifier = _made(notifier, arguments)
        if medium is not None and medium not in _MEDIA:
            raise ValueError(f"TonyNotifier: medium is {medium!r}; write one of {', '.join(_MEDIA)}")
        self.task_id = task_id
        self.tony_conn_id = tony_conn_id
        self.medium = medium
        self.lines = lines
        self.seconds = positive_seconds("seconds", seconds)

    def notify(self, context: Context) -> None:
        """Send the message.

        Exceptions of the other notifier are not handled. Airflow logs them, and they do not change the task's state.
        """
        self._sender()(_with_news(context, self._news(context)))

    async def async_notify(self, context: Context) -> None:
        """Send the message from a triggerer."""
        told = _with_news(context, await in_thread(partial(self._news, context)))
        sender = self._sender()
        if isinstance(sender, BaseNotifier) and type(sender).async_notify is not BaseNotifier.async_notify:
            sender.context = told
            await sender
        else:
            await in_thread(partial(sender, told))

    def _news(self, context: Context) -> TrainingMessage:
        from tony_provider.notifications.message import Medium, for_medium, medium_of
        from tony_provider.notifications.message_source import MessageSource  # here: DAG files load this module

        source = MessageSource(
            log=self.log,
            task_id=self.task_id,
            tony_conn_id=self.tony_conn_id,
            lines=self.lines,
            seconds=self.seconds,
        )
        medium = medium_of(self.notifier) if self.medium is None else Medium(self.medium)
        return for_medium(source.news(context), medium)

    def _sender(self) -> BaseNotifier | Sender:
        """Return the function, or a copy of the notifier, because rendering replaces a notifier's templates."""
        return copy.copy(self.notifier) if isinstance(self.notifier, BaseNotifier) else self.notifier


def _made(notifier: Any, arguments: dict[str, Any]) -> BaseNotifier | Sender:
    """Return the notifier. Raises TypeError if it is not callable, or for unused arguments."""
    made = pkgutil.resolve_name(notifier) if isinstance(notifier, str) else notifier
    if isinstance(made, type):
        made = made(**arguments)
    elif arguments:
        raise TypeError(f"TonyNotifier: {', '.join(arguments)}: only a notifier's class accepts further arguments")
    if not callable(made):
        raise TypeError(f"TonyNotifier: {notifier!r} is neither a notifier nor callable")
    return made  # type: ignore[no-any-return]


def _with_news(context: Context, news: TrainingMessage) -> Context:
    return {**context, "tony": news}  # type: ignore[typeddict-unknown-key]
