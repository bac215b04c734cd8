"""The job specification: ``model`` says what a job is; ``parse_job`` in ``parse`` reads what people write."""
