"""Messages of Hadoop's wire protocols in use, and code that ``generate.sh`` generates from them.

Only the fields in use are declared, with the names, numbers, types and labels that Hadoop 2.10 to 3.4 share.
``tests/runtime/hadoop/test_descriptors.py`` compares them with the classes in the real jars.
"""
