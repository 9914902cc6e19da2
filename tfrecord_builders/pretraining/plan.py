"""The manifests of a pretraining build's sets, and their jobs."""

import dataclasses
from collections.abc import Iterator, Sequence

from etils import epath

from tfrecord_builders import corpus
from tfrecord_builders.pretraining import dedup, output_folder
from tfrecord_builders.pretraining.dedup import Choice
from tfrecord_builders.pretraining.options import DEV, PretrainingOptions
from tfrecord_builders.pretraining.worker import Job
from xlnet_tf import files
from xlnet_tf.errors import UserError
from xlnet_tf.records import manifest as manifest_lib
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.spec import MAX_SLICES, RecordSpec
from xlnet_tf.text.tokenizer import XLNetTokenizer


def new_manifests(
    options: PretrainingOptions, tokenizer: XLNetTokenizer, sources: Sequence[corpus.Source]
) -> list[Manifest]:
    """Returns the manifests, without shards, of one set in the output folder, or of two in folders in it."""
    folder = epath.Path(options.output_dir)
    same = ("use_eod", "sentence_split", "perm_size", "objective", "functional_tokens", "num_passes",
            "stream_segments", "slice_bytes", "seed", "compat", "split")  # fmt: skip
    only = Manifest.create(
        RecordSpec(options.seq_len, options.reuse_len, options.num_predict, tokenizer.vocab_size),
        tokenizer.fingerprint,
        bidirectional=options.bidirectional,
        corpus=[{"file": source.name, "bytes": source.num_bytes} for source in sources],
        cleaning=options.cleaning.to_dict(),
        mask={
            "alpha": options.mask_alpha,
            "beta": options.mask_beta,
            "span_mode": options.span_mode,
            "max_words": options.max_words,
        },
        documents={
            "borders": options.documents,
            "text_field": options.text_field,
            "mark_paragraphs": options.mark_paragraphs,
            "dedup": options.dedup,
            "dev_fraction": float(options.dev_fraction),
            "side": "",
        },
        folder=folder,
        **{name: getattr(options, name) for name in same},
    )
    if not options.dev_fraction:
        if held_out := output_folder.held_out_set(folder / DEV):
            raise UserError(
                f"{folder} holds a training set and a held-out set ({held_out.folder}) of a build with "
                f"--dev_fraction={held_out.documents['dev_fraction']:g}, so that it cannot hold a set of its "
                "own: choose another --output_dir, give --dev_fraction again, or remove both sets first"
            )
        return [only]
    if (folder / manifest_lib.FILE_NAME).exists() or files.files_in(folder, ".tfrecord"):
        raise UserError(
            f"{folder} holds a set of its own, built without --dev_fraction, so that it cannot hold a "
            "training and a held-out set: choose another --output_dir, leave --dev_fraction out, or remove "
            "that set first"
        )
    return [
        dataclasses.replace(
            only, split=split, folder=folder / split, documents={**only.documents, "side": side}
        )
        for split, side in ((options.split, "train"), (DEV, "dev"))
    ]


def plan_jobs(
    sources: Sequence[corpus.Source],
    choice: Choice | None,
    sets: Sequence[tuple[Manifest, output_folder.ShardsBySlice]],
) -> Iterator[Job]:
    """Yields the jobs of sets as the corpus is split.

    `choice` says which documents go where; None: all into the only set. `sets` are each set's manifest and
    the shards of an earlier finished set.
    """
    first = sets[0][0]
    slices = corpus.plan_shards(sources, first.slice_bytes)
    if choice is None:
        of_sides = ((False, one) for one in slices)
    else:
        of_sides = dedup.select(slices, choice, first.documents["dev_fraction"])
    by_side = {}
    for started, earlier in sets:
        # One goes with each job to its worker: without its lists, which may be long.
        bare = dataclasses.replace(started, corpus=[], shards=(), statistics={})
        by_side[started.documents["side"] == "dev"] = bare, earlier
    for is_dev, corpus_shard in of_sides:
        if corpus_shard.index >= MAX_SLICES:
            raise UserError(f"more than {MAX_SLICES} slices: use a larger --slice_mb")
        if is_dev in by_side:
            started, earlier = by_side[is_dev]
            yield Job(started, corpus_shard, earlier.get(corpus_shard.index, {}))
