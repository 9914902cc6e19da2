"""Options of a conversion."""

import dataclasses
from collections.abc import Sequence

from xlnet_tf.flags import option
from xlnet_tf.records import ranks, spans


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """What to convert, from which format ("original" or "model_garden"), and how; None: see the help."""

    input: Sequence[str] = option(
        "folders of records, or paths or globs of their record_info-*.json or *.tfrecord*.json; with --to "
        "the folder of one of our sets"
    )
    output_dir: str = option("folder for what is written")
    source_format: str
    tokenizer: str | None = option(
        "with --from: the SentencePiece model that the records were made with", None
    )
    keep_accents: bool = option(
        "with --from: the text was cleaned with accents kept (--keep_accents); records do not say", False
    )
    seed: int = option("with --from: random seed for what is drawn", 0, least=0)
    perm_size: int | None = option(
        "with --from: tokens of a block that is permuted by itself. Default: reuse_len", None, least=1
    )
    num_predict: int | None = option(
        "with --from: targets of a segment. Default: the original's own number (the "
        "largest, if it was not fixed); for Model Garden's a sixth of a segment",
        None,
        least=1,
    )
    span_mode: str = option(
        "with --from=model_garden: targets are spans of whole words, spans of pieces, or single tokens",
        spans.MASK["span_mode"],
        choices=spans.SPAN_MODES,
    )
    functional_tokens: str | None = option(
        "with --from: SEP and CLS have positions in the "
        "order, unseen by context (default for the original's), or are context (Model Garden's)",
        None,
        choices=ranks.FUNCTIONAL_TOKENS,
    )
    stream_segments: int | None = option(
        "with --from: cut rows into streams of this many segments, for batches of "
        "more rows. Default: a row is a stream",
        None,
        least=1,
    )
    num_cores: int | None = option(
        "cores that share a batch's rows (num_core(s)_per_host), which decides "
        "the rows that are read backward. Default: what corpus_info.json or the meta file says; with --to 1",
        None,
        least=1,
    )
