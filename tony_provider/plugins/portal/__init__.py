"""The portal: pages about jobs within Airflow's own, and what serves them their data."""
