"""What the example DAGs share. Airflow puts the DAGs' folder on the import path, so they import it by this name."""
