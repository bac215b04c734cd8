"""The application master's web server: the job's page, logs and control, behind the cluster's proxy."""
