"""The runtime on the cluster's nodes: the application master, the executors and their common code.

It imports nothing from Airflow.
"""
