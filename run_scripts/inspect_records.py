"""Shows, counts, checks and compares pretraining records; reports on examples, and on tokens elsewhere.

    python -m run_scripts.inspect_records --records=records --record=0 --target=3
    python -m run_scripts.inspect_records --records=records --record=0 --png=mask.png
    python -m run_scripts.inspect_records --records=records --stats --png=distributions.png
    python -m run_scripts.inspect_records --records=records --check --num_workers=8
    python -m run_scripts.inspect_records --records=records --diff=other
    python -m run_scripts.inspect_records --examples=records/sst-2 --page=report.html
    python -m run_scripts.inspect_records --tokens_of=runs/reviews --input=texts.txt

--examples reports lengths, labels, truncation, <unk>, repeated inputs, and what splits share with train.
--tokens_of counts the texts of --input that another tokenizer splits differently from the model's: the
installed sentencepiece, TensorFlow Text and transformers, and the pipeline that made `input_ids` in the file.
--png draws the record's permutation mask, or the distributions of the set. --json prints what a program can
read. The exit status is 1 if --check finds something wrong or --diff a difference.
"""

import dataclasses
import json
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tfrecord_builders.inspection import check as inspect_check
from tfrecord_builders.inspection import diff as inspect_diff
from tfrecord_builders.inspection import example_sets, plot_distributions, plot_mask
from tfrecord_builders.inspection import show as inspect_show
from tfrecord_builders.inspection import statistics as inspect_statistics
from tfrecord_builders.inspection import tokens as inspect_tokens
from xlnet_tf import errors
from xlnet_tf.cli import command_line
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.pages import page
from xlnet_tf.records.manifest import Manifest


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Which records are shown, and how."""

    records: str | None = option("folder of pretraining records", None)
    examples: str | None = option("folder of examples for fine-tuning, or of several splits of them", None)
    tokens_of: str | None = option("folder or name of a model: compare its tokens with others'", None)
    input: str | None = option(
        "with --tokens_of: a file of texts, one a line, or of JSON objects with `text` and the `input_ids` "
        "of another pipeline, without special tokens",
        None,
    )
    page: str | None = option("with --examples: write the report, with pictures, as a page, too", None)
    record: int = option("which record to show, counted over all shards", 0, least=0)
    target: int | None = option("whose view to show, by rank in the order. Default: the middle one", None)
    png: str | None = option(
        "draw into this file, too: the record's permutation mask; with --stats the set's distributions", None
    )
    first: int = option("first position to draw", 0, least=0)
    count: int | None = option(
        f"positions to draw; up to {plot_mask.MOST_LABELLED} are labelled. Default: all", None
    )
    stats: bool = option("statistics of the set instead of a record", False)
    check: bool = option(
        "check all records of the set instead of showing one; exit status 1 if one is wrong", False
    )
    diff: str | None = option("another set: show how the two differ; exit status 1 if they do", None)
    json: bool = option("print json: with --stats, --check, --diff, --examples, --tokens_of", False)
    num_workers: int = option("processes that read the set for --check and --stats", 1, least=1)


def check_together(options: InspectOptions) -> None:
    """Raises UserError for options that do not go together."""
    chosen = [name for name in ("stats", "check", "diff") if getattr(options, name)]
    if bool(options.tokens_of) != bool(options.input):
        raise UserError("--tokens_of and --input belong together: give a model and a file of texts")
    if options.tokens_of:
        names = ("records", "examples", *chosen, "png", "page")
        if others := [name for name in names if getattr(options, name)]:
            raise UserError(f"--tokens_of is given with --{' and --'.join(others)}, expected --json with it")
        return
    if options.examples:
        others = [name for name in ("records", *chosen, "png") if getattr(options, name)]
        if others:
            raise UserError(
                f"--examples is given with --{' and --'.join(others)}, expected --page or --json with it"
            )
        return
    if options.page:
        raise UserError("--page is given with --records, expected --examples with it")
    if len(chosen) > 1:
        raise UserError(
            f"--{' and --'.join(chosen)} are given, expected one of them: run the script for each"
        )
    if options.json and not chosen:
        raise UserError("--json is given to show a record, expected --stats, --check or --diff with it")
    if options.png and (options.check or options.diff):
        raise UserError(
            "--png is given with --check or --diff, expected a record to show, or --stats with it"
        )
    if options.png and not options.png.endswith((".png", ".svg", ".pdf")):
        raise UserError(f"png is {options.png!r}, expected a file's name that ends in .png, .svg or .pdf")


def run(options: InspectOptions) -> int:
    """Shows, summarizes, checks or compares records as the options say; returns the exit status."""
    check_together(options)
    if options.tokens_of:
        found = inspect_tokens.compare(options.tokens_of, options.input)
        print(
            json.dumps(found, indent=1, ensure_ascii=False) if options.json else inspect_tokens.table(found)
        )
        return 0
    if options.examples:
        report = example_sets.report(example_sets.load(options.examples))
        print(json.dumps(report, indent=1) if options.json else example_sets.table(report))
        if options.page:
            write_page(report, options.examples, options.page)
            print(f"wrote {options.page}", file=sys.stderr)
        return 0
    manifest = Manifest.load(options.records)
    if options.check:
        report = inspect_check.check(manifest, options.num_workers, progress=True)
        print(json.dumps(report.to_dict(), indent=1) if options.json else f"{manifest.folder}: {report}")
        return 0 if report.sound else 1
    if options.diff:
        differences = inspect_diff.compare(manifest, Manifest.load(options.diff), progress=True)
        print(json.dumps(differences, indent=1) if options.json else inspect_diff.table(differences))
        return 0 if differences["same"] else 1
    if options.stats:
        statistics = inspect_statistics.count(manifest, options.num_workers, progress=True)
        print(json.dumps(statistics, indent=1) if options.json else inspect_statistics.table(statistics))
        if options.png:
            plot_distributions.draw(statistics, options.png)
            print(f"wrote {options.png}", file=sys.stderr)
        return 0
    print(inspect_show.describe(manifest, options.record, options.target, color=sys.stdout.isatty()))
    if options.png:
        plot_mask.draw(manifest, options.record, options.png, options.first, options.count)
        print(f"\nwrote {options.png}")
    return 0


def write_page(found: Mapping[str, Any], folder: str, path: str) -> None:
    """Writes a report of `example_sets.report` as one self-contained page."""
    head, *rows = [("", *found), *example_sets.rows(found)]
    with tempfile.TemporaryDirectory() as temporary:
        picture = pathlib.Path(temporary) / "lengths.png"
        example_sets.draw(found, str(picture))
        parts = [
            page.table(head, rows),
            page.section(
                "Lengths and labels", "Tokens of each example as the model reads it, and its labels."
            ),
            page.picture(picture, "How many examples have how many tokens, and each label."),
        ]
    if samples := example_sets.samples(found):
        parts += [
            page.section("Look at these", "The first inputs that other examples have, too."),
            page.table(("What", "Example", "Text"), samples),
        ]
    page.write(path, f"Examples in {folder}", parts)


def main(_: Sequence[str]) -> None:
    sys.exit(run(from_flags(InspectOptions)))


if __name__ == "__main__":
    define_flags(InspectOptions)
    command_line.require_one_of("records", "examples", "tokens_of")
    errors.run(main)
