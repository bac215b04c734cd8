"""The job's page: what people see of a job in their browser."""
