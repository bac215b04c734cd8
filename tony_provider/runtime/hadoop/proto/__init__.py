"""Protobuf messages of Hadoop's wire protocols: ``.proto`` files, and code that ``generate.sh`` generates from them.

The files declare only the messages and fields that this package uses. Their names, numbers, types and labels are the
same in Hadoop 2.10 to 3.5. ``tests/runtime/hadoop/test_descriptors.py`` compares them with the classes in Hadoop's
jars.
"""
