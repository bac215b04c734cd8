"""The one place that knows that Airflow has versions, from 3.0 on: what differs between them is imported from here.

Each file branches by a capability of ``capabilities.py``, or by the version where nobody misses anything, and serves
everybody else with what the newest Airflow has: Airflow's own where it is there, else what stands in for it, or a
readable error for whoever uses it.
"""
