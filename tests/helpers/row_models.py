"""Models without TensorFlow, which worker processes can import: for tests of sharded answers."""

import dataclasses
import os
import pathlib
import signal
import time

import numpy as np

from run_scripts.common.sharded.shard import Answerer
from tfrecord_builders.corpus import is_text
from xlnet_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Echo:
    """Answers a text with its length and with how many rows its batch has; refuses those with "bad" in them.

    One with "deadly" kills its process, one with "unlucky" the first two. The folder `log` gets a file for
    each batch, which takes some seconds.
    """

    log: str
    seconds: float = 0.0

    def load(self, threads: int) -> Answerer:
        del threads

        def read(row):
            if not is_text(row.get("text")):
                raise UserError("the row has no text")
            return {"text": row["text"]}

        def answer(rows):
            batch(self, [row["text"] for row in rows])
            deaths = pathlib.Path(f"{self.log}.deaths")
            unlucky = any("unlucky" in row["text"] for row in rows) and len(list(deaths.glob("*"))) < 2
            if unlucky:
                deaths.mkdir(exist_ok=True)
                (deaths / str(os.getpid())).touch()
            if unlucky or any("deadly" in row["text"] for row in rows):
                os.kill(os.getpid(), signal.SIGKILL)
            if any("bad" in row["text"] for row in rows):
                raise ValueError("a bad text\nin the batch")
            return [
                {
                    "length": len(row["text"]),
                    "batch": len(rows),
                    "vector": np.float32([0.1, len(row["text"])]),
                    "n": np.float32(np.nan if "nan" in row["text"] else 1),
                }
                for row in rows
            ]

        outputs = {
            "length": (np.dtype(np.int32), 0),
            "batch": (np.dtype(np.int32), 0),
            "vector": (np.dtype(np.float32), 1),
            "n": (np.dtype(np.float32), 0),
        }
        return Answerer(read, answer, outputs)


@dataclasses.dataclass(frozen=True)
class Hopeless(Echo):
    """Kills every process that loads it."""

    def load(self, threads: int) -> Answerer:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


def batch(model: Echo, texts: list[str]) -> None:
    """Called with each batch; tests may put another function in its place."""
    number = f"{os.getpid()}-{time.monotonic_ns()}"
    (pathlib.Path(model.log) / number).write_text("\n".join(texts))
    time.sleep(model.seconds)
