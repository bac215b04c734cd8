"""What is wrong with a connection, found within seconds: for "Test connection", ``airflow tony doctor`` and DAGs."""
