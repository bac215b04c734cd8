"""What travels to the nodes: the application master, the executors and what they share. Imports nothing of Airflow."""
