"""Parse and validate job specifications. Only the Airflow side does this; nodes receive the validated job."""
