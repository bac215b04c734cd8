"""Programs and measures of the benchmarks ``airflow_…``: what the provider costs Airflow's own processes."""
