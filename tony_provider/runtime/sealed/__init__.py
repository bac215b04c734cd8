"""Conversations that nobody on their way can read: TLS whose records travel in the bodies of HTTP requests.

Between the Airflow side and an application master stands YARN's web proxy, which hands requests on as plain HTTP unless
the cluster is told otherwise. What must not be read there goes through here.
"""
