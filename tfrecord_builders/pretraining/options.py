"""Options of the pretraining builder and their checks."""

import dataclasses
import functools
import re

from etils import epath

from tfrecord_builders.common import runners
from tfrecord_builders.corpus import CorpusOptions, is_part
from tfrecord_builders.corpus.sentences import check_language
from xlnet_tf import folders
from xlnet_tf.config import MOST_SEED
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option
from xlnet_tf.records import manifest, ranks, segments, spans
from xlnet_tf.records.spec import MAX_PASSES, MAX_SEQ_LEN
from xlnet_tf.schema import check_fields
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.locating import cleaning_for

DEV = "dev"  # name of the held-out set


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingOptions(CorpusOptions, runners.RunnerOptions):
    """What to build; each field is a flag. None means the default that the help states."""

    tokenizer: str = option(
        "SentencePiece model with XLNet's special symbols (xlnet-tf train-tokenizer makes one)", group="model"
    )
    output_dir: str = option("folder for the records", group="output")
    dedup: bool = option(
        "leave out documents that are equal, line by line, to an earlier one; the corpus is read once more",
        False,
    )
    dev_fraction: float = option(
        "share of the documents that are held out, chosen by their text: makes two sets, in the folders "
        "--split (train) and dev of --output_dir; the corpus is read twice more",
        0.0,
        least=0,
        most=0.5,
        group="data",
    )
    split: str = option("name of the (training) set: the first word of its shards' names", "train")
    seq_len: int = option("tokens of a segment", 512, least=7, group="examples")
    reuse_len: int | None = option(
        "leading tokens of a segment that go into the memory; the next segment "
        "starts after them. Default: seq_len / 2",
        None,
        least=1,
    )
    num_predict: int | None = option(
        "targets of a segment. Default: seq_len * mask_beta / mask_alpha", None, least=1
    )
    perm_size: int | None = option(
        "tokens of a block that is permuted by itself; divides reuse_len and "
        "seq_len - reuse_len. Default: reuse_len",
        None,
        least=1,
        most=MAX_SEQ_LEN,
    )
    objective: str = option(
        "permutation (XLNet), autoregressive "
        "(every token predicted in natural order) or denoising (BERT's independent targets)",
        "permutation",
        choices=ranks.OBJECTIVES,
    )
    functional_tokens: str = option(
        "SEP and CLS have positions in the order, unseen by context (the original), or are context",
        "ordered",
        choices=ranks.FUNCTIONAL_TOKENS,
    )
    mask_alpha: int = option(
        "K of the paper: of each mask_alpha tokens, mask_beta are targets",
        spans.MASK["alpha"],
        least=1,
        most=(1 << 31) - 1,
    )
    mask_beta: int = option("see mask_alpha", spans.MASK["beta"], least=1)
    span_mode: str = option(
        "targets are spans of whole words, spans of pieces, or single tokens",
        spans.MASK["span_mode"],
        choices=spans.SPAN_MODES,
    )
    max_words: int = option("longest span, in words (or pieces)", spans.MASK["max_words"], least=1)
    bidirectional: bool = option("write the text read backward, too", True)
    num_passes: int = option(
        "times that the corpus is written, each time with other segments' partners, targets and orders",
        1,
        least=1,
        most=MAX_PASSES,
        group="examples",
    )
    lower: bool | None = option("lower-case the text. Default: as a model next to the tokenizer, or no", None)
    keep_accents: bool | None = option(
        "keep accents (the released models drop them). Default: as a model next to the tokenizer, or no", None
    )
    use_eod: bool = option("write an <eod> token where a document ends", True)
    sentence_split: str = option(
        "language code (en, de, zh, ...) if the corpus has "
        "paragraphs on its lines, which are to be split into sentences",
        "",
        group="examples",
    )
    stream_segments: int = option(
        "longest stream: segments whose memory follows one another", 64, least=1, most=1 << 20
    )
    slice_mb: float = option("MB of text in a job: one shard per pass", 4.0, least=0.001, most=32)
    seed: int = option("same corpus, tokenizer, flags and seed: same bytes", 0, least=0, most=MOST_SEED)
    compat: bool = option(
        "choose segments and targets as the original code does, its flaws included (slow)", False
    )
    overwrite: bool = option("replace another build in output_dir", False)

    def resolved(self) -> "PretrainingOptions":
        """Returns the options with all defaults filled in, checked as far as possible without the data."""
        check_fields(self)
        reuse_len = self.seq_len // 2 if self.reuse_len is None else self.reuse_len
        segments.check_lengths(self.seq_len, reuse_len)
        num_predict = self.num_predict
        if self.objective == "autoregressive":
            everything = self.seq_len - segments.NUM_SPECIAL
            if num_predict not in (None, everything):
                raise UserError(
                    f"num_predict is {num_predict}, but objective=autoregressive predicts all {everything} "
                    "tokens of a segment: leave num_predict out"
                )
            num_predict = everything
        elif num_predict is None:
            num_predict = round(self.seq_len * self.mask_beta / self.mask_alpha)
            if not num_predict:
                raise UserError(
                    f"mask_alpha is {self.mask_alpha}, so that segments of {self.seq_len} tokens have no "
                    f"target: expected at most {2 * self.seq_len * self.mask_beta - 1}"
                )
        resolved = dataclasses.replace(
            self,
            reuse_len=reuse_len,
            num_predict=num_predict,
            perm_size=reuse_len if self.perm_size is None else self.perm_size,
            num_workers=self.num_workers or runners.threads_of_machine(),
        )
        resolved.check()
        return resolved

    def check(self) -> None:
        """Raises UserError if an option is out of range or does not fit the others."""
        super().check()
        for name, most in (("mask_beta", self.mask_alpha), ("max_words", self.seq_len)):
            if getattr(self, name) > most:
                raise UserError(f"{name} is {getattr(self, name)}, expected 1 to {most}")
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.split):
            raise UserError(f"split is {self.split!r}, expected a name of letters, digits and underscores")
        if self.dev_fraction and self.split == DEV:
            raise UserError(
                f"split is {DEV!r}, which is the held-out set's name: name the training set otherwise"
            )
        folder = epath.Path(self.output_dir)
        for each in (folder / self.split, folder / DEV) if self.dev_fraction else (folder,):
            folders.claim(each, folders.RECORDS, flag="--output_dir")
        for path in self.input:
            if is_part(epath.Path(self.output_dir) / manifest.FILE_NAME, path):
                raise UserError(
                    f"output_dir {self.output_dir} is in {path}, the corpus: the records would be part of "
                    "it. Choose another --output_dir"
                )
        if self.sentence_split:
            check_language(self.sentence_split)
        self.check_runner()
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
        """The options that locate and describe the corpus."""
        names = (field.name for field in dataclasses.fields(CorpusOptions))
        return CorpusOptions(**{name: getattr(self, name) for name in names})

    @functools.cached_property
    def cleaning(self) -> CleaningConfig:
        return cleaning_for(self.tokenizer, lower=self.lower, keep_accents=self.keep_accents)

    @property
    def slice_bytes(self) -> int:
        return int(self.slice_mb * 1e6)
