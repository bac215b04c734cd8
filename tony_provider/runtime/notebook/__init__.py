"""The program of a notebook's container, which the executor unpacks as ``tony_notebook``: ``python -m tony_notebook``.

It starts Jupyter, keeps what people write there, and ends it. Standard library, and ``tony_sdk`` beside it; modules
import each other by relative names, since there they have no other.
"""
