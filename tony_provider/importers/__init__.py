"""Jobs of other systems, read and written anew as ours: a file for each system, behind ``system.py``.

Nothing of theirs is executed, and nothing is asked of a cluster. What cannot be carried over is listed with the reason.
"""
