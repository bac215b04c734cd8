"""What is left of an application: read from the store as far as it goes, and summed up for Airflow."""
