"""Links from a task in Airflow's pages to what it has started."""
