"""What all builders of labelled examples are asked for."""

import dataclasses

from etils import epath

from xlnet_tf.errors import UserError
from xlnet_tf.flags import check_limits, option
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer

SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class ExampleOptions:
    """Where the tokenizer and the examples are, and how text is cleaned; each field is a flag.

    A builder's options derive from these and have a field for each of SPLITS: where its data is.
    """

    tokenizer: str = option("SentencePiece model of the checkpoint to fine-tune")
    output_dir: str = option("folder for the examples, one folder in it for each split")
    _: dataclasses.KW_ONLY
    lower: bool = option("lower-case the text", False)
    keep_accents: bool = option("keep accents (the released models drop them)", False)

    @property
    def cleaning(self) -> CleaningConfig:
        return CleaningConfig(lower=self.lower, keep_accents=self.keep_accents)

    @property
    def splits(self) -> list[str]:
        """The splits to build."""
        return [split for split in SPLITS if getattr(self, split)]

    def check(self) -> None:
        """Raises UserError for options that are out of range or do not fit each other."""
        check_limits(self)
        if not self.splits:
            raise UserError("no data: give --train, --dev or --test")

    def load_tokenizer(self) -> XLNetTokenizer:
        """Raises FileNotFoundError if there is none."""
        if not epath.Path(self.tokenizer).exists():
            raise FileNotFoundError(f"tokenizer {self.tokenizer} does not exist: check --tokenizer")
        return XLNetTokenizer(self.tokenizer, cleaning=self.cleaning)
