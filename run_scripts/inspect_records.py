"""Shows, counts, checks and compares pretraining records, and reports on examples for fine-tuning.

    python -m run_scripts.inspect_records --records=records --record=0 --target=3
    python -m run_scripts.inspect_records --records=records --record=0 --png=mask.png
    python -m run_scripts.inspect_records --records=records --stats --png=distributions.png
    python -m run_scripts.inspect_records --records=records --check --num_workers=8
    python -m run_scripts.inspect_records --records=records --diff=other
    python -m run_scripts.inspect_records --examples=records/sst-2 --page=report.html

--examples reports lengths, labels, truncation, <unk>, repeated inputs, and what splits share with train.
--png draws the record's permutation mask, or the distributions of the set. --json prints what a program can
read. The exit status is 1 if --check finds something wrong or --diff a difference.
"""

import json
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from run_scripts.common import pages
from tfrecord_builders.inspection import check as inspect_check
from tfrecord_builders.inspection import diff as inspect_diff
from tfrecord_builders.inspection import example_sets, plot_distributions, plot_mask
from tfrecord_builders.inspection import show as inspect_show
from tfrecord_builders.inspection import statistics as inspect_statistics
from xlnet_tf import errors
from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest


def run(values: flags.FlagValues) -> int:
    """Shows, summarizes, checks or compares what the flags say.

    Returns:
        The exit status.
    """
    if values.examples:
        return _report(values)
    if values.page:
        raise UserError("--page is given with --records, expected --examples with it")
    manifest = Manifest.load(values.records)
    chosen = [name for name in ("stats", "check", "diff") if getattr(values, name)]
    if len(chosen) > 1:
        raise UserError(
            f"--{' and --'.join(chosen)} are given, expected one of them: run the script for each"
        )
    if values.json and not chosen:
        raise UserError("--json is given to show a record, expected --stats, --check or --diff with it")
    if values.png and (values.check or values.diff):
        raise UserError(
            "--png is given with --check or --diff, expected a record to show, or --stats with it"
        )
    if values.png and not values.png.endswith((".png", ".svg", ".pdf")):
        raise UserError(f"png is {values.png!r}, expected a file's name that ends in .png, .svg or .pdf")
    if values.check:
        report = inspect_check.check(manifest, values.num_workers, progress=True)
        print(json.dumps(report.to_dict(), indent=1) if values.json else f"{manifest.folder}: {report}")
        return 0 if report.sound else 1
    if values.diff:
        differences = inspect_diff.compare(manifest, Manifest.load(values.diff), progress=True)
        print(json.dumps(differences, indent=1) if values.json else inspect_diff.table(differences))
        return 0 if differences["same"] else 1
    if values.stats:
        statistics = inspect_statistics.count(manifest, values.num_workers, progress=True)
        print(json.dumps(statistics, indent=1) if values.json else inspect_statistics.table(statistics))
        if values.png:
            plot_distributions.draw(statistics, values.png)
            print(f"wrote {values.png}", file=sys.stderr)
        return 0
    print(inspect_show.describe(manifest, values.record, values.target, color=sys.stdout.isatty()))
    if values.png:
        plot_mask.draw(manifest, values.record, values.png, values.first, values.count)
        print(f"\nwrote {values.png}")
    return 0


def _report(values: flags.FlagValues) -> int:
    others = ("records", "stats", "check", "diff", "png")
    if given := [name for name in others if getattr(values, name)]:
        raise UserError(
            f"--examples is given with --{' and --'.join(given)}, expected --page or --json with it"
        )
    found = example_sets.report(example_sets.load(values.examples))
    print(json.dumps(found, indent=1) if values.json else example_sets.table(found))
    if values.page:
        write_page(found, values.examples, values.page)
        print(f"wrote {values.page}", file=sys.stderr)
    return 0


def write_page(found: Mapping[str, Any], folder: str, path: str) -> None:
    """Writes the report on sets of examples as one page that needs nothing else.

    Args:
        found: of `example_sets.report`.
        folder: what it is about, for the title.
    """
    head, *rows = [("", *found), *example_sets.rows(found)]
    with tempfile.TemporaryDirectory() as temporary:
        picture = pathlib.Path(temporary) / "lengths.png"
        example_sets.draw(found, str(picture))
        parts = [
            pages.table(head, rows),
            pages.section(
                "Lengths and labels", "Tokens of each example as the model reads it, and its labels."
            ),
            pages.picture(picture, "How many examples have how many tokens, and each label."),
        ]
    if samples := example_sets.samples(found):
        parts += [
            pages.section("Look at these", "The first inputs that other examples have, too."),
            pages.table(("What", "Example", "Text"), samples),
        ]
    pages.write(path, f"Examples in {folder}", parts)


def main(_: Sequence[str]) -> None:
    sys.exit(run(flags.FLAGS))


if __name__ == "__main__":
    flags.DEFINE_string("records", None, "folder of pretraining records")
    flags.DEFINE_string("examples", None, "folder of examples for fine-tuning, or of several splits of them")
    flags.DEFINE_string("page", None, "with --examples: write the report, with pictures, as a page, too")
    command_line.require_one_of("records", "examples")
    flags.DEFINE_integer("record", 0, "which record to show, counted over all shards", lower_bound=0)
    flags.DEFINE_integer("target", None, "whose view to show, by rank in the order. Default: the middle one")
    flags.DEFINE_string(
        "png",
        None,
        "draw into this file, too: the record's permutation mask; with --stats the set's distributions",
    )
    flags.DEFINE_integer("first", 0, "first position to draw", lower_bound=0)
    flags.DEFINE_integer(
        "count",
        None,
        f"positions to draw; up to {plot_mask.MOST_LABELLED} are labelled. Default: all",
    )
    flags.DEFINE_bool("stats", False, "statistics of the set instead of a record")
    flags.DEFINE_bool(
        "check", False, "check all records of the set instead of showing one; exit status 1 if one is wrong"
    )
    flags.DEFINE_string("diff", None, "another set: show how the two differ; exit status 1 if they do")
    flags.DEFINE_bool("json", False, "print json: with --stats, --check, --diff, --examples")
    flags.DEFINE_integer(
        "num_workers", 1, "processes that read the set for --check and --stats", lower_bound=1
    )
    errors.run(main)
