"""Estimates of a pretraining run; docs/how-to/sizing.md explains the rates."""

import dataclasses
import math

from run_scripts.common.estimates.records import Records
from xlnet_tf.checkpoints import names
from xlnet_tf.config import PRESETS, XLNetConfig
from xlnet_tf.flags import option

FLOAT_BYTES, BFLOAT16_BYTES = 4, 2


@dataclasses.dataclass(frozen=True)
class PretrainingRun(Records):
    """A pretraining run and the rates it is estimated with; each field is a flag."""

    preset: str = option("size of the model", "large", choices=tuple(PRESETS))
    memory_len: int = option("tokens of memory", 384, least=0)
    batch_size: int = option("segments of a step, over all cores", 8192, positive=True)
    steps: int = option("steps of the run", 500_000, positive=True)
    stream_segments: int = option("segments of a stream", 64, positive=True)
    cores: int = option("cores of the TPU slice", 512, positive=True)
    cores_per_host: int = option("cores of a host", 8, positive=True)
    step_seconds: float = option(
        "seconds of a step; an estimate (docs/how-to/sizing.md)", 1.061, positive=True
    )
    reader_examples: float = option(
        "examples that a host's reader gives in a second", 32_500.0, positive=True
    )
    request_seconds: float = option("seconds that a request to the storage waits", 0.05, least=0)
    request_mb: float = option(
        "MB that a request reads: TensorFlow's buffer of a file in Cloud Storage", 67.1, positive=True
    )
    requests_at_once: int = option("concurrent requests of a host's reader", 16, positive=True)


def parameters(config: XLNetConfig) -> int:
    """Returns the number of weights of a pretraining model: the encoder's, and a bias for each piece."""
    return sum(map(math.prod, names.encoder_shapes(config).values())) + config.n_token


def size(run: PretrainingRun) -> dict[str, dict[str, float]]:
    """Estimates a run: part -> resource -> amount; the unit is the last word of the name."""
    config = XLNetConfig.preset(run.preset)
    record, records = run.record_bytes(config.n_token), run.records_of_pass
    stored = run.num_passes * records * record
    read = run.steps * run.batch_size
    hosts = math.ceil(run.cores / run.cores_per_host)
    rows = run.batch_size / hosts
    # Each stream is opened anew, and what the buffer holds beyond it is not used.
    of_stream = math.ceil(run.stream_segments * record / (run.request_mb * 1e6))
    requests = rows * of_stream / run.stream_segments
    to_device = run.seq_len * (4 + 1 + 2) + 2 * run.num_predict + 7
    weights = parameters(config) * FLOAT_BYTES
    memory = config.n_layer * run.batch_size * run.memory_len * config.d_model * BFLOAT16_BYTES
    return {
        "records": {
            "one pass, million records": records / 1e6,
            "a record, bytes": record,
            "one pass, GB": records * record / 1e9,
            "all passes, TB": stored / 1e12,
            "shards": run.shards,
            "a shard, MB": stored / run.shards / 1e6,
        },
        "training": {
            "read in all, million records": read / 1e6,
            "each record of all passes is read, times": read / (run.num_passes * records),
            "hosts": hosts,
            "rows of a core": run.batch_size / run.cores,
            "all steps, days": run.steps * run.step_seconds / 86_400,
        },
        "input of a host": {
            "needed, examples/s": rows / run.step_seconds,
            "the reader gives, examples/s": run.reader_examples,
            "of use from storage, MB/s": rows * record / run.step_seconds / 1e6,
            "read from storage, at most, MB/s": requests * run.request_mb / run.step_seconds,
            "buffers of open files, GB": rows * run.request_mb / 1e3,
            "to the devices, MB/s": rows * to_device / run.step_seconds / 1e6,
            "requests to storage, 1/s": requests / run.step_seconds,
            "parsing limits steps to, s": rows / run.reader_examples,
            "waiting for storage limits steps to, s": requests * run.request_seconds / run.requests_at_once,
        },
        "checkpoint": {
            "weights and optimizer, GB": 3 * weights / 1e9,
            "memory, GB": memory / 1e9,
            "written by the first host, GB": (3 * weights + memory / hosts) / 1e9,
            "written by each other host, GB": memory / hosts / 1e9,
        },
        "memory of a core": {
            "weights and optimizer, GB": 3 * weights / 1e9,
            "memory of its rows, GB": memory / run.cores / 1e9,
        },
    }
