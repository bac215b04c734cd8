"""``airflow tony …``."""
