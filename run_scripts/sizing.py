r"""What a pretraining run needs of records, storage, hosts, input; the defaults are the paper's run.

    python -m run_scripts.sizing --step_seconds=1.0
    python -m run_scripts.sizing --preset=base --pieces=3.9e9 --text_gb=13 --batch_size=256 --cores=8

Plain arithmetic over measured rates, each a flag; docs/sizing.md says where they come from.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags

from xlnet_tf import errors
from xlnet_tf.config import PRESETS, XLNetConfig
from xlnet_tf.records.shards import framed_bytes
from xlnet_tf.records.spec import RecordSpec

READ_BUFFER_BYTES = 1 << 16  # of the reader, per row
FLOAT_BYTES, BFLOAT16_BYTES = 4, 2


def _flag(default, meaning: str):
    return dataclasses.field(default=default, metadata={"help": meaning})


@dataclasses.dataclass(frozen=True)
class Run:
    """A pretraining run and the rates it is reckoned with; each field is a flag."""

    preset: str = _flag("large", "size of the model")
    pieces: float = _flag(32.9e9, "of the corpus")
    text_gb: float = _flag(158.0, "of the corpus, 10**9 bytes")
    num_passes: int = _flag(16, "times that the text is sampled anew, in both directions")
    seq_len: int = _flag(512, "tokens of a segment")
    reuse_len: int = _flag(256, "of them, tokens that the segment has in common with the next")
    num_predict: int = _flag(85, "targets of a segment")
    memory_len: int = _flag(384, "tokens of memory")
    batch_size: int = _flag(8192, "segments of a step, over all cores")
    steps: int = _flag(500_000, "of the run")
    stream_segments: int = _flag(64, "segments of a stream")
    slice_mb: float = _flag(64.0, "text of a shard")
    cores: int = _flag(512, "of the TPU slice")
    cores_per_host: int = _flag(8, "of them")
    step_seconds: float = _flag(1.0, "time of a step, an estimate")
    builder_mb: float = _flag(3.9, "text that one process builds a pass from in a second, 10**6 bytes")
    once_share: float = _flag(
        0.74, "part of the builder's time that later passes over the same text do without"
    )
    reader_examples: float = _flag(32_500.0, "examples that a host's reader gives in a second")
    request_seconds: float = _flag(0.05, "time of a request to the storage")


def parameters(config: XLNetConfig) -> int:
    """Returns the number of weights of a pretraining model."""
    model, inner, heads = config.d_model, config.d_inner, config.n_head * config.d_head
    biases = 3 * heads  # of the attention; one set for all layers, or one each
    layer = 5 * model * heads + 2 * heads + 2 * model * inner + inner + 5 * model
    return (
        config.n_token * (model + 1)
        + model
        + config.n_layer * layer
        + (config.n_layer if config.untie_r else 1) * biases
    )


def size(run: Run) -> dict[str, dict[str, float]]:
    """Reckons a run.

    Args:
        run: the run.

    Returns:
        part of the run -> what it takes -> how much; the unit is the last word of the name.
    """
    config = XLNetConfig.preset(run.preset)
    record = framed_bytes(RecordSpec(run.seq_len, run.reuse_len, run.num_predict, config.n_token))
    records = 2 * run.pieces / (run.seq_len - run.reuse_len)  # of a pass
    read = run.steps * run.batch_size
    hosts = run.cores / run.cores_per_host
    rows = run.batch_size / hosts
    build = run.text_gb * 1e3 / run.builder_mb * (run.once_share + run.num_passes * (1 - run.once_share))
    # A row asks for its next buffer, and for its next stream.
    requests = rows * (record / READ_BUFFER_BYTES + 1 / run.stream_segments)
    to_device = run.seq_len * (4 + 1 + 2) + 2 * run.num_predict + 7
    weights = parameters(config) * FLOAT_BYTES
    memory = config.n_layer * run.batch_size * run.memory_len * config.d_model * BFLOAT16_BYTES
    return {
        "records": {
            "one pass, both directions, million records": records / 1e6,
            "a record, bytes": record,
            "one pass, GB": records * record / 1e9,
            "all passes, TB": run.num_passes * records * record / 1e12,
            "shards": run.num_passes * run.text_gb * 1e3 / run.slice_mb,
            "a shard, MB": records * record / (run.text_gb * 1e3 / run.slice_mb) / 1e6,
            "building, core hours": build / 3600,
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
            "from storage, MB/s": rows * record / run.step_seconds / 1e6,
            "to the devices, MB/s": rows * to_device / run.step_seconds / 1e6,
            "requests to storage, 1/s": requests / run.step_seconds,
            "parsing limits steps to, s": rows / run.reader_examples,
            "storage limits steps to, s": requests * run.request_seconds,
        },
        "checkpoint": {
            "weights and optimizer, GB": 3 * weights / 1e9,
            "memory, GB": memory / 1e9,
        },
        "memory of a core": {
            "weights and optimizer, GB": 3 * weights / 1e9,
            "memory of its rows, GB": memory / run.cores / 1e9,
        },
    }


def table(sizes: dict[str, dict[str, float]]) -> str:
    """Returns what `size` reckons for a person."""
    lines = []
    for part, values in sizes.items():
        lines.append(part)
        lines += [f"  {name:<44}{value:>14,.{_digits(value)}f}" for name, value in values.items()]
    return "\n".join(lines)


def _digits(value: float) -> int:
    """Returns how many decimals show three significant digits."""
    return next((digits for digits, least in enumerate((100, 10, 1, 0.1)) if value >= least), 4)


def main(argv: Sequence[str]) -> None:
    del argv
    names = [field.name for field in dataclasses.fields(Run)]
    print(table(size(Run(**{name: getattr(flags.FLAGS, name) for name in names}))))


def define_flags() -> None:
    """Defines a flag for each field of Run."""
    define = {int: flags.DEFINE_integer, float: flags.DEFINE_float}
    preset, *numbers = dataclasses.fields(Run)
    flags.DEFINE_enum(preset.name, preset.default, list(PRESETS), preset.metadata["help"])
    for field in numbers:
        define[field.type](field.name, field.default, field.metadata["help"], lower_bound=0)


if __name__ == "__main__":
    define_flags()
    errors.run(main)
