"""Has another process make batches; see test_example_table.py.

    python -m tests.helpers.records.remote_table FOLDER

prints where the batches of FOLDER's examples were made and which examples the first three have.
"""

import multiprocessing
import socket
import sys

import tensorflow as tf

from tests.records import test_example_table as test
from xlnet_tf.records.batching import Batches
from xlnet_tf.records.example_reader import ExampleTable, example_dataset
from xlnet_tf.records.examples import ExampleSet


def serve(address: str):
    tf.distribute.Server({"worker": [address]}, job_name="worker", task_index=0).join()


def main(folder: str):
    with socket.socket() as one:
        one.bind(("localhost", 0))
        address = f"localhost:{one.getsockname()[1]}"
    server = multiprocessing.get_context("spawn").Process(target=serve, args=[address], daemon=True)
    server.start()
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": [address]}))
    with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
        examples = ExampleSet.load(folder)
        dataset = example_dataset(Batches(examples, test.BATCH), ExampleTable(examples), steps=test.STEPS)
        iterator = iter(dataset)
        batches = [next(iterator) for _ in range(3)]
    (place,) = {value.backing_device for batch in batches for value in batch.values()}
    print(place, *tf.concat([batch["index"] for batch in batches], 0).numpy())
    server.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
