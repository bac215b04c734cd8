"""Notifications about trainings, for Airflow's callbacks."""
