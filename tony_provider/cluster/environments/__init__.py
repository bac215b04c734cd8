"""Python environments on Airflow's side: what they hold, whether they suit the nodes, how they are built and kept."""
