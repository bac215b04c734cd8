"""Hadoop spoken from Python: RPC version 9 with SASL tokens, token files, and the two YARN protocols of an application master.

Nothing here starts a JVM, and nothing blocks the event loop.
"""
