"""The tutorial learns from a slice of real reviews, and fine-tunes a checkpoint."""

import gzip
import itertools
import subprocess
import sys

import pytest

from examples import chinese_classification as tutorial
from tests.conftest import REPOSITORY
from xlnet_tf import XLNetConfig, XLNetEncoder
from xlnet_tf.checkpoints import save_model
from xlnet_tf.text.training import train_tokenizer

REVIEWS = {"1": "很好 非常 喜欢 不错", "0": "太差 失望 糟糕 不好"}


@pytest.mark.long
def test_a_tiny_model_learns_from_real_reviews(shared, tmp_path):
    """Of the two labels, the more frequent has 0.55."""
    tokenizer = shared("data/xlnet_chinese/spiece.model")
    with gzip.open(shared("data/chnsenticorp/train.tsv.gz"), "rt", encoding="utf-8") as file:
        (tmp_path / "train.tsv").write_text("".join(itertools.islice(file, 2001)), encoding="utf-8")
    with open(shared("data/chnsenticorp/dev.tsv"), encoding="utf-8") as file:
        (tmp_path / "test.tsv").write_text("".join(itertools.islice(file, 401)), encoding="utf-8")
    accuracy = tutorial.run(
        str(tmp_path / "train.tsv"), str(tmp_path / "test.tsv"), tokenizer=str(tokenizer), seq_len=48
    )
    assert accuracy > 0.7


@pytest.mark.integration
def test_the_command_fine_tunes_a_checkpoint(tmp_path):
    texts = [
        (label, f"这间酒店{first}，早餐{second}。")
        for label, words in REVIEWS.items()
        for first, second in itertools.product(words.split(), repeat=2)
    ]
    lines = ["label\ttext_a", *(f"{label}\t{text}" for label, text in texts)]
    (tmp_path / "reviews.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = train_tokenizer([text for _, text in texts], 45)
    encoder = XLNetEncoder(
        XLNetConfig(tokenizer.vocab_size, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=16)
    )
    encoder.build()
    save_model(encoder, str(tmp_path / "pretrained"))
    (tmp_path / "pretrained" / "spiece.model").write_bytes(tokenizer.model_proto)

    command = [sys.executable, "-m", "examples.chinese_classification", "--seq_len=16"]
    command += [f"--{name}={tmp_path}/reviews.tsv" for name in ("train", "test")]
    result = subprocess.run(
        [*command, f"--checkpoint={tmp_path}/pretrained"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1].startswith("accuracy 0.")

    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 1 and "either --checkpoint or --tokenizer" in result.stderr
