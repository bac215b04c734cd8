"""Python clients for Hadoop: RPC version 9, tokens, and the two YARN protocols of an application master.

The clients start no JVM and do not block the event loop.
"""
