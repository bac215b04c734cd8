"""The commands ``airflow tony …``: a small file for each, defined in ``definition.py``."""
