"""No reader leaves tf.data's tuning thread behind, for which the end of an iterator would wait."""

from tests.helpers.training import toy, toy_finetuning
from xlnet_tf.records.batching import Batches
from xlnet_tf.records.example_reader import ExampleTable, example_dataset
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.records.reader import pretraining_dataset


def test_no_reader_is_tuned(tmp_path, small_tokenizer):
    toy.make_records(tmp_path / "pretraining")
    examples = toy_finetuning.make_examples(tmp_path / "examples", small_tokenizer, 8)
    datasets = {
        "pretraining": pretraining_dataset(Manifest.load(tmp_path / "pretraining"), 4),
        "examples": example_dataset(Batches(examples, 4)),
        "table": example_dataset(Batches(examples, 4), ExampleTable(examples), steps=2),
    }
    assert {name: data.options().autotune.enabled for name, data in datasets.items()} == dict.fromkeys(
        datasets, False
    )
