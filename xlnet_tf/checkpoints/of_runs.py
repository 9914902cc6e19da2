"""Where a run keeps its checkpoints: MODEL_DIR/ckpt-STEP."""

import tensorflow as tf

NAME = "ckpt"


def newest(model_dir: str) -> str | None:
    """Returns the path of a run's newest checkpoint, whole or not; None if there is none."""
    return next(iter(newest_first(model_dir)), None)


def newest_first(model_dir: str) -> list[str]:
    """Returns the paths of all checkpoints of a run, by falling step."""
    indices = tf.io.gfile.glob(f"{model_dir}/{NAME}-*.index")
    prefixes = [path.removesuffix(".index") for path in indices]
    steps = {prefix: prefix.rpartition("-")[2] for prefix in prefixes}
    return sorted((p for p in prefixes if steps[p].isdigit()), key=lambda p: int(steps[p]), reverse=True)
