"""The messages of Hadoop's wire protocols that this project uses, and code generated from them by ``generate.sh``.

Only the fields in use are declared, with the names, numbers, types and labels that Hadoop 2.10 to 3.4 have in common;
``tests/runtime/hadoop/test_descriptors.py`` holds them against the classes inside the real jars.
"""
