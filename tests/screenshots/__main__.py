"""``python -m tests.screenshots``: take the pictures of the documents anew, as ``make screenshots`` does."""

from __future__ import annotations

import os
import sys

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow

os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "WARNING"  # of this process; read when Airflow is imported
from tests.demo.airflow import REPOSITORY
from tests.e2e.airflow import AirflowError
from tests.screenshots.camera import Camera
from tests.screenshots.pictures import take_all
from tests.screenshots.stage import Stage

FOLDER = REPOSITORY / "docs" / "_static" / "screenshots"


def main() -> int:
    try:
        stage = Stage()
        try:
            stage.set_up()
            FOLDER.mkdir(parents=True, exist_ok=True)
            camera = Camera(stage.airflow.url, FOLDER)
            try:
                take_all(stage, camera)
            finally:
                camera.close()
                (FOLDER / "last.png").unlink(missing_ok=True)  # the browser's last page, kept for tests that fail
        finally:
            stage.clear()
    except AirflowError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
