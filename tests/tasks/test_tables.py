"""`xlnet_tf.finetune`: what it asks for is named as in Python."""

import pytest

import xlnet_tf

REVIEWS = "review,stars\nka,a\nto,b\n"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a,b\nka,x\n", {}, r'which the label\? Say so with columns=\{"text": "...", "label": "..."\}, or'),
        (REVIEWS, {"columns": {"text": "txt"}}, r'no column .*: name the right one with columns=\{"text'),
        ("text,label,query,passage\nka,a,to,b\n", {}, r'give task="classification" or task="ranking"$'),
        ("review,stars\nka,\nto,\n", {}, r'no label in .* or name another with columns=\{"label": "..."\}'),
        (REVIEWS, {"train": "data"}, "give it as --data of the command xlnet-tf finetune"),
        (REVIEWS, {"train": [{"text": "ka"}]}, "the table is a list, expected a file: save its rows as csv"),
        (REVIEWS, {"model_dir": "data/train"}, "choose another model_dir"),
    ],
)
def test_messages_name_arguments(content, options, message, tmp_path, small_tokenizer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text(content)
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    (tmp_path / "data/train").mkdir(parents=True)
    (tmp_path / "data/train/shard-00000.tfrecord").touch()
    with pytest.raises(xlnet_tf.UserError, match=message) as error:
        xlnet_tf.finetune(**{"train": "reviews.csv", "model": "spiece.model", **options})
    assert "\n" not in str(error.value)
