"""Program of a notebook's container, which the executor unpacks as ``tony_notebook``: ``python -m tony_notebook``.

It starts Jupyter, saves the user's files, and stops Jupyter. It uses only the standard library and ``tony_sdk``, which
lies next to it. Its modules import each other by relative names, because the package has another name in the container.
"""
