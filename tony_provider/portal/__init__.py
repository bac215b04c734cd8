"""The portal: pages and an API about jobs, served by Airflow's API server under Airflow's permissions.

All Airflow processes import the plugin. Only the API server imports the other modules of this package.
"""
