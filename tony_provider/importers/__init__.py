"""Import jobs of other systems as job specifications: one module for each system, behind ``read_job``.

Importers execute no code of a job and contact no cluster. They list what they cannot carry over, with the reason.
"""
