"""From what people write to a job that can be run. The Airflow side does it, once: the nodes get its result."""
