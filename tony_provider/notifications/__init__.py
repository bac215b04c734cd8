"""Messages to people about trainings, for Airflow's callbacks."""
