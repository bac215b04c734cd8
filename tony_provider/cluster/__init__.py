"""Airflow's access to the clusters that run jobs: the Cluster interface, its backends, and submissions."""
