"""Imported by a process that others are forked from: what each of them would need seconds for."""

from __future__ import annotations

from airflow.sdk.execution_time.supervisor import in_process_api_server

# Airflow's server of a task, in the task's process, makes a model for each version of its interface at the first call.
# A call would also start threads, which a fork loses.
in_process_api_server().app._cadwyn_initialize()
