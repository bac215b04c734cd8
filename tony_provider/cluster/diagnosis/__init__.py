"""Finding what is wrong with a connection, within seconds: for "Test connection", ``airflow tony doctor`` and DAGs."""
