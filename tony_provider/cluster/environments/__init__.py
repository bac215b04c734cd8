"""Python environments on the Airflow side: inspection, compatibility with the nodes, builds and storage."""
