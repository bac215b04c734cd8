"""The start of the application master or an executor in a container.

The launch command carries two texts: ``launcher.sh`` finds a Python, and ``prepare.py`` verifies the runtime archive
and unpacks the part for that Python. ``start.py`` is the main module of that part.
"""
