"""Read what people write and make a valid job of it. Only the Airflow side does so; nodes receive the result."""
