"""Job files: their parameters and templates, and writers of job files and DAG files."""
