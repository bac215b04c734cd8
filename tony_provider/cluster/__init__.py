"""The cluster that a job runs on, as Airflow uses it: the Cluster interface, its backends, submission."""
