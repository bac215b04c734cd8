"""The portal: what became of each job, inside Airflow's API server and by its permissions.

Only the API server loads what is in here.
"""
