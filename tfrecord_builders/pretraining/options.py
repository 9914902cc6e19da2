"""What the pretraining builder can be asked for: options, their checks and their flags."""

import dataclasses
import os
import re

from absl import flags
from etils import epath

from tfrecord_builders.common import runners
from tfrecord_builders.corpus import CorpusOptions, define_corpus_flags, is_part
from tfrecord_builders.corpus.sentences import check_language
from xlnet_tf.errors import UserError
from xlnet_tf.records import manifest, ranks, segments, spans
from xlnet_tf.records.spec import MAX_PASSES, MAX_SEQ_LEN
from xlnet_tf.text.cleaning import CleaningConfig

DEV = "dev"  # name of the held-out set


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(CorpusOptions):
    """What to build; see the flags of the same names. None means the default that the help states."""

    tokenizer: str
    output_dir: str
    dedup: bool = False
    dev_fraction: float = 0.0
    split: str = "train"
    seq_len: int = 512
    reuse_len: int | None = None
    num_predict: int | None = None
    perm_size: int | None = None
    objective: str = "permutation"
    functional_tokens: str = "ordered"
    mask_alpha: int = 6
    mask_beta: int = 1
    span_mode: str = "words"
    max_words: int = 5
    bidirectional: bool = True
    num_passes: int = 1
    lower: bool = False
    keep_accents: bool = False
    use_eod: bool = True
    sentence_split: str = ""
    stream_segments: int = 64
    slice_mb: float = 4.0
    num_workers: int | None = None
    runner: str = "local"
    beam_options: str = ""
    seed: int = 0
    compat: bool = False
    overwrite: bool = False

    def resolved(self) -> "PretrainingOptions":
        """Returns the options with all defaults filled in, checked as far as they can be without the data.

        Raises:
            UserError: an option is out of range or does not fit the others.
        """
        reuse_len = self.seq_len // 2 if self.reuse_len is None else self.reuse_len
        segments.check_lengths(self.seq_len, reuse_len)
        num_predict = self.num_predict
        if self.objective == "autoregressive":
            everything = self.seq_len - segments.NUM_FUNCTIONAL
            if num_predict not in (None, everything):
                raise UserError(
                    f"num_predict is {num_predict}, but objective=autoregressive predicts all {everything} "
                    "tokens of a segment: leave num_predict out"
                )
            num_predict = everything
        elif num_predict is None:
            num_predict = round(self.seq_len * self.mask_beta / self.mask_alpha)
        resolved = dataclasses.replace(
            self,
            reuse_len=reuse_len,
            num_predict=num_predict,
            perm_size=reuse_len if self.perm_size is None else self.perm_size,
            num_workers=self.num_workers or len(os.sched_getaffinity(0)),
        )
        resolved.check()
        return resolved

    def check(self) -> None:
        """Raises UserError if an option is out of range or does not fit the others."""
        super().check()
        choices = {
            "objective": ranks.OBJECTIVES,
            "functional_tokens": ranks.FUNCTIONAL_TOKENS,
            "span_mode": spans.SPAN_MODES,
            "runner": runners.RUNNERS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise UserError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}")
        ranges = {
            "mask_alpha": (1, (1 << 31) - 1),
            "mask_beta": (1, self.mask_alpha),
            "perm_size": (1, MAX_SEQ_LEN),
            "max_words": (1, self.seq_len),
            "num_passes": (1, MAX_PASSES),
            "stream_segments": (1, 1 << 20),
            "slice_mb": (0.001, 32),
            "num_workers": (1, 1024),
            "dev_fraction": (0, 0.5),
            "seed": (0, 2**63 - 1),
        }
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise UserError(f"{name} is {getattr(self, name)}, expected {low} to {high}")
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.split):
            raise UserError(f"split is {self.split!r}, expected a name of letters, digits and underscores")
        if self.dev_fraction and self.split == DEV:
            raise UserError(
                f"split is {DEV!r}, which is the held-out set's name: name the training set otherwise"
            )
        for path in self.input:
            if is_part(epath.Path(self.output_dir) / manifest.FILE_NAME, path):
                raise UserError(
                    f"output_dir {self.output_dir} is in {path}, the corpus: the records would be part of "
                    "it. Choose another --output_dir"
                )
        if self.sentence_split:
            check_language(self.sentence_split)
        if self.beam_options and self.runner != "beam":
            raise UserError(f"beam_options are for runner beam (now {self.runner})")
        if self.objective != "autoregressive":
            spans.split_num_predict(self.num_predict, self.seq_len, self.reuse_len)
        if self.objective == "permutation":
            ranks.check_perm_size(self.perm_size, self.seq_len, self.reuse_len)
        if self.compat and (self.reuse_len * 2 != self.seq_len or self.objective != "permutation"):
            raise UserError(
                f"compat is the original's builder: it needs reuse_len {self.seq_len / 2:g} "
                f"(now {self.reuse_len}) and objective permutation (now {self.objective})"
            )

    @property
    def corpus(self) -> CorpusOptions:
        """Where the corpus is and what it looks like: all that its parts need to know."""
        names = (field.name for field in dataclasses.fields(CorpusOptions))
        return CorpusOptions(**{name: getattr(self, name) for name in names})

    @property
    def cleaning(self) -> CleaningConfig:
        return CleaningConfig(lower=self.lower, keep_accents=self.keep_accents)

    @property
    def slice_bytes(self) -> int:
        return int(self.slice_mb * 1e6)


def define_flags() -> None:
    """Defines one flag for each field of PretrainingOptions."""
    default = {field.name: field.default for field in dataclasses.fields(PretrainingOptions)}
    define_corpus_flags()
    flags.DEFINE_string(
        "tokenizer",
        None,
        "SentencePiece model with XLNet's special symbols (run_scripts/train_tokenizer.py makes one)",
    )
    flags.DEFINE_string("output_dir", None, "folder for the records")
    flags.mark_flags_as_required(["tokenizer", "output_dir"])
    flags.DEFINE_bool(
        "dedup",
        default["dedup"],
        "leave out documents that are equal, line by line, to an earlier one; the corpus is read once more",
    )
    flags.DEFINE_float(
        "dev_fraction",
        default["dev_fraction"],
        "share of the documents that are held out, chosen by their text: makes two sets, in the folders "
        "--split (train) and dev of --output_dir; the corpus is read twice more",
        lower_bound=0,
        upper_bound=0.5,
    )
    flags.DEFINE_string(
        "split", default["split"], "name of the (training) set: the first word of its shards' names"
    )
    flags.DEFINE_integer("seq_len", default["seq_len"], "tokens of a segment", lower_bound=7)
    flags.DEFINE_integer(
        "reuse_len",
        None,
        "leading tokens of a segment that go into the memory; the next segment "
        "starts after them. Default: seq_len / 2",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "num_predict", None, "targets of a segment. Default: seq_len * mask_beta / mask_alpha", lower_bound=1
    )
    flags.DEFINE_integer(
        "perm_size",
        None,
        "tokens of a block that is permuted by itself; divides reuse_len and "
        "seq_len - reuse_len. Default: reuse_len",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "objective",
        default["objective"],
        list(ranks.OBJECTIVES),
        "permutation (XLNet), autoregressive "
        "(every token predicted in natural order) or denoising (BERT's independent targets)",
    )
    flags.DEFINE_enum(
        "functional_tokens",
        default["functional_tokens"],
        list(ranks.FUNCTIONAL_TOKENS),
        "SEP and CLS take places in the order, unseen by context (the original), or are context",
    )
    flags.DEFINE_integer(
        "mask_alpha",
        default["mask_alpha"],
        "K of the paper: of each mask_alpha tokens, mask_beta are targets",
        lower_bound=1,
    )
    flags.DEFINE_integer("mask_beta", default["mask_beta"], "see mask_alpha", lower_bound=1)
    flags.DEFINE_enum(
        "span_mode",
        default["span_mode"],
        list(spans.SPAN_MODES),
        "targets are spans of whole words, spans of pieces, or single tokens",
    )
    flags.DEFINE_integer(
        "max_words", default["max_words"], "longest span, in words (or pieces)", lower_bound=1
    )
    flags.DEFINE_bool("bidirectional", default["bidirectional"], "write the text read backward, too")
    flags.DEFINE_integer(
        "num_passes",
        default["num_passes"],
        "times that the corpus is written, each time with other segments' partners, targets and orders",
        lower_bound=1,
    )
    flags.DEFINE_bool("lower", default["lower"], "lower-case the text")
    flags.DEFINE_bool("keep_accents", default["keep_accents"], "keep accents (the released models drop them)")
    flags.DEFINE_bool("use_eod", default["use_eod"], "write an <eod> token where a document ends")
    flags.DEFINE_string(
        "sentence_split",
        default["sentence_split"],
        "language code (en, de, zh, ...) if the corpus has "
        "paragraphs on its lines, which are to be split into sentences",
    )
    flags.DEFINE_integer(
        "stream_segments",
        default["stream_segments"],
        "longest stream: segments whose memory follows one another",
        lower_bound=1,
    )
    flags.DEFINE_float(
        "slice_mb", default["slice_mb"], "MB of text in a unit of work: one shard per pass", lower_bound=0.001
    )
    flags.DEFINE_integer("num_workers", None, "processes. Default: the cores of this machine", lower_bound=1)
    flags.DEFINE_enum(
        "runner",
        default["runner"],
        list(runners.RUNNERS),
        "where the units of work run: processes of this machine, or Apache Beam (requirements-beam.txt)",
    )
    flags.DEFINE_string(
        "beam_options",
        default["beam_options"],
        "Beam's own options, as on a command line: '--runner=DataflowRunner --project=...' (see BUILD.md)",
    )
    flags.DEFINE_integer(
        "seed", default["seed"], "same corpus, tokenizer, flags and seed: same bytes", lower_bound=0
    )
    flags.DEFINE_bool(
        "compat",
        default["compat"],
        "choose segments and targets as the original code does, its flaws included (slow)",
    )
    flags.DEFINE_bool("overwrite", default["overwrite"], "replace another build in output_dir")
