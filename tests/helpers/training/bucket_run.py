"""Trains a very small model on records in a bucket, and keeps the run there; see test_bucket.py.

    python -m tests.helpers.training.bucket_run gs://BUCKET STEPS

reads gs://BUCKET/records and gs://BUCKET/dev and writes gs://BUCKET/run. A killed owner's lease ends soon.
"""

import sys

import tensorflow as tf
from etils import epath

from tests.helpers.training.worker import settings
from xlnet_tf import errors, ownership
from xlnet_tf.tasks.pretraining import task as pretraining


def main(folder: str, steps: str):
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    ownership.BEAT_SECONDS, ownership.LEASE_SECONDS, ownership._SETTLE_SECONDS = 0.5, 4.0, 0.1
    params = settings(epath.Path(folder), train_steps=int(steps))
    pretraining.pretrain(params, f"{folder}/run")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.argv[1:] = []
    errors.run(lambda _: main(*arguments))
