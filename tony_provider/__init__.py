"""Distributed deep-learning training on Hadoop YARN as one step of an Apache Airflow pipeline."""

__version__ = "0.1.0"
