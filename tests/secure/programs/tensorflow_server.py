"""TensorFlow's own server, as a task of a job has it: at the port that was found for the task. It never ends."""

import os
from pathlib import Path

import tensorflow as tf

address = os.environ["TONY_RENDEZVOUS"]
server = tf.distribute.Server({"local": [address]}, config=None, protocol="grpc")
Path("serves").write_text(address)
server.join()
