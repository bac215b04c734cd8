"""Links from a task in Airflow's pages to its application and job pages."""
