"""Hadoop spoken from Python: RPC version 9, tokens, and an application master's two YARN protocols.

Nothing here starts a JVM, and nothing blocks the event loop.
"""
