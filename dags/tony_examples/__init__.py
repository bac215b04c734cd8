"""Modules that several example DAGs share. They can be imported because Airflow adds the DAGs folder to the path."""
