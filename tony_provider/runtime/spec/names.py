"""Grammars of names of users, queues, node labels, tags and environment variables.

The provider checks names from other systems, trigger forms and connections against these grammars before any use.
"""

from __future__ import annotations

import re

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
QUEUE = re.compile(r"[\w.@%+-]+")
NODE_LABEL = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,254}")  # YARN's CommonNodeLabelsManager
TAG = re.compile(r"[!-+\--~]+")  # printable ASCII without blank and comma, because REST separates tags by commas
USER = re.compile(r"\w[\w.@+=$-]{0,255}")  # a short name or a Kerberos principal without a host

USER_RULE = "a user's name has letters, digits and . _ @ + = $ -, and begins with a letter, a digit or _"
