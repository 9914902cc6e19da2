"""The process in which `training.train_tokenizer` trains: SentencePiece's trainer keeps Python's lock.

It reads pickles from stdin, the random seed with the trainer's settings, and then sentences up to the end.
It writes the model to stdout. If SentencePiece refuses the texts, it writes the reason and exits with
REFUSED. Its stderr is SentencePiece's log.
"""

import ctypes
import io
import pickle
import signal
import sys
from collections.abc import Iterator

import sentencepiece

REFUSED = 3
_PR_SET_PDEATHSIG = 1  # of Linux' <sys/prctl.h>


def main() -> int:
    """Trains; returns the exit status."""
    if sys.platform == "linux":  # a thread that watches the parent would wait for Python's lock
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    seed, settings = pickle.load(sys.stdin.buffer)
    sentencepiece.set_random_generator_seed(seed)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_sentences(), model_writer=model, **settings
        )
    except RuntimeError as error:
        sys.stdout.write(str(error))
        return REFUSED
    # Not sys.stdout.buffer, which under `python -u` may write a part.
    with open(sys.stdout.fileno(), "wb", closefd=False) as answer:
        answer.write(model.getvalue())
    return 0


def _sentences() -> Iterator[str]:
    while True:
        try:
            yield pickle.load(sys.stdin.buffer)
        except EOFError:
            return


if __name__ == "__main__":
    sys.exit(main())
