"""A set of pretraining records of a corpus, and the tables of estimates."""

import dataclasses
import math
from collections.abc import Mapping

from xlnet_tf.flags import option
from xlnet_tf.records.shards import framed_bytes
from xlnet_tf.records.spec import RecordSpec


@dataclasses.dataclass(frozen=True)
class Records:
    """A set of pretraining records of a corpus, by default the paper's; each field is a flag."""

    text_gb: float = option("GB of text in the corpus, unpacked", 158.0, positive=True)
    pieces: float = option(
        "tokens of the corpus. If only one of pieces and text_gb is given, the other is in proportion to it",
        32.9e9,
        positive=True,
    )
    num_passes: int = option("times that the text is sampled", 16, positive=True)
    directions: int = option("1: forward; 2: forward and backward", 2, positive=True, most=2)
    seq_len: int = option("tokens of a segment", 512, positive=True)
    reuse_len: int = option(
        "leading tokens of a segment that go into the memory; the next segment starts after them",
        256,
        positive=True,
    )
    num_predict: int = option("targets of a segment", 85, positive=True)
    slice_mb: float = option("MB of text in a job", 32.0, positive=True)

    def record_bytes(self, vocab_size: int) -> int:
        return framed_bytes(RecordSpec(self.seq_len, self.reuse_len, self.num_predict, vocab_size))

    @property
    def records_of_pass(self) -> float:
        """Records of one pass, apart from the ends of jobs: a segment begins every reuse_len tokens."""
        return self.directions * self.pieces / self.reuse_len

    @property
    def jobs(self) -> int:
        """Units of work that the text is cut into."""
        return math.ceil(self.text_gb * 1e3 / self.slice_mb)

    @property
    def shards(self) -> int:
        """Shards of all passes; a unit makes one for each pass."""
        return self.jobs * self.num_passes


def in_proportion(paper: Records, given: Mapping[str, float], *names: str) -> dict[str, float]:
    """Scales the paper's corpus sizes (fields `names`) by the first of them that is given."""
    known = next((name for name in names if name in given), names[0])
    share = given.get(known, getattr(paper, known)) / getattr(paper, known)
    return {name: getattr(paper, name) * share for name in names}


def table(parts: Mapping[str, Mapping[str, float]]) -> str:
    """Formats estimates: part -> resource -> amount; the unit is the last word of the name."""
    lines = []
    for part, values in parts.items():
        lines.append(part)
        lines += [f"  {name:<44}{value:>14,.{_digits(value)}f}" for name, value in values.items()]
    return "\n".join(lines)


def _digits(value: float) -> int:
    """Returns how many decimals show three significant digits."""
    return next((digits for digits, least in enumerate((100, 10, 1, 0.1)) if value >= least), 4)
