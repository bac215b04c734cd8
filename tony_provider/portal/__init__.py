"""The portal: pages and an API about jobs, served by Airflow's API server under Airflow's permissions.

Only the API server imports the modules of this package, apart from the plugin itself.
"""
