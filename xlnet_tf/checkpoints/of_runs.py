"""Where a run keeps its checkpoints: MODEL_DIR/ckpt-STEP."""

import os
import re

from xlnet_tf import files
from xlnet_tf.errors import UserError

NAME = "ckpt"


def check_name(path: str) -> None:
    """Raises a UserError if TensorFlow could not read a checkpoint at a path: it takes it as a pattern."""
    if found := [character for character in "*?[\\" if character in path]:
        raise UserError(
            f"{path} has {' and '.join(found)} in its name: TensorFlow takes that as a pattern, and reads no "
            "checkpoint there. Give the folder another name"
        )


def newest(model_dir: str) -> str | None:
    """Returns the path of a run's newest checkpoint, whole or not; None if there is none."""
    return next(iter(newest_first(model_dir)), None)


def newest_first(model_dir: str) -> list[str]:
    """Returns the paths of all checkpoints of a run, by falling step."""
    paths = files.beginning_with(os.path.join(model_dir, f"{NAME}-"))
    found = [match for path in paths if (match := re.fullmatch(rf"(.*{NAME}-([0-9]+))\.index", path))]
    return [match[1] for match in sorted(found, key=lambda m: -int(m[2]))]
