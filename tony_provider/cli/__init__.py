"""The commands ``airflow tony …``, which ``definition.py`` defines and the other modules implement."""
