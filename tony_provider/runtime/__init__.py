"""The runtime, which travels to the nodes: the application master, the executors and what they share.

It imports nothing of Airflow.
"""
