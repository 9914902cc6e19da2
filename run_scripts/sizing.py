r"""Estimates what pretraining needs: records, storage, hosts, input; with --build, building the records.

    python -m run_scripts.sizing --step_seconds=1.2
    python -m run_scripts.sizing --preset=base --text_gb=13 --pieces=3.9e9 --batch_size=256 --cores=8
    python -m run_scripts.sizing --build --machines=8 --workers=16
    python -m run_scripts.sizing --build --records=records --text_gb=158 --builder_mb=6.8

--build estimates what building the records takes; --records takes what it can from a set that was built of a
part of the corpus: its tokens, sizes and passes. Plain arithmetic over measured rates, each a flag; the
defaults are the paper's run. docs/how-to/sizing.md and docs/how-to/corpus.md say where they come from.
"""

import dataclasses
from collections.abc import Sequence

from run_scripts.common.estimates import building, records, training
from xlnet_tf import errors
from xlnet_tf.config import PRESETS
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, given_of, option
from xlnet_tf.records.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class Sizing(training.PretrainingRun, building.BuildPlan):
    """A run, and the build of its records; each field is a flag."""

    build: bool = option("estimate what building the records takes, instead of the run", False)
    records: str | None = option(
        "set built from a part of the corpus; flags that you give take precedence", None
    )


def main(_: Sequence[str]) -> None:
    options = from_flags(Sizing)
    other, hint = (
        (training.PretrainingRun, "leave them out; a machine's workers are --workers")
        if options.build
        else (building.BuildPlan, "add --build")
    )
    fields = {field.name for field in dataclasses.fields(other)}
    fields -= {field.name for field in dataclasses.fields(records.Records)} | {"documents", "preset"}
    if unused := [f"--{name}" for name in given_of(Sizing) if name in fields]:
        part = "a run" if options.build else "building records"
        raise UserError(f"{', '.join(unused)}: only for the estimate of {part}: {hint}")
    if options.records:
        measured = building.from_manifest(Manifest.load(options.records), options.text_gb)
    else:
        measured = records.in_proportion(Sizing(), given_of(Sizing), "text_gb", "pieces", "documents")
        measured["vocab_size"] = PRESETS[options.preset].n_token
    sizing = from_flags(Sizing, **measured)
    print(records.table(building.plan(sizing) if options.build else training.size(sizing)))


if __name__ == "__main__":
    define_flags(Sizing)
    errors.run(main)
