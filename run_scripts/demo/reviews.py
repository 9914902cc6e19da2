"""The second half of the demos: does pretraining help to classify film reviews?

Fine-tunes the same head on few labelled reviews, once on pretrained weights and once from scratch, and counts
how many held-out reviews each gets right. No review of these was in the pretraining corpus.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

RECIPE = pathlib.Path(__file__).parents[1] / "recipes" / "demo_reviews.yaml"
SEQ_LEN = 128


@dataclasses.dataclass(frozen=True)
class Arm:
    """How well the model did from one beginning.

    Attributes:
        learning_rate: the one of those tried that did best on the dev reviews, with the first seed.
        tried: learning rate -> accuracy on the dev reviews.
        test: accuracy on the test reviews, for each seed.
    """

    learning_rate: float
    tried: dict[float, float]
    test: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.test))


def make_examples(tables: pathlib.Path, tokenizer: pathlib.Path, folder: pathlib.Path) -> None:
    """Builds the examples; of a long review its beginning and its end are kept."""
    from tfrecord_builders.classification.build import build_classification
    from tfrecord_builders.classification.options import ClassificationOptions
    from xlnet_tf.records import example_report

    options = ClassificationOptions(
        tokenizer=str(tokenizer),
        output_dir=str(folder),
        train=str(tables / "train.csv"),
        dev=str(tables / "dev.csv"),
        test=str(tables / "test.csv"),
        seq_len=SEQ_LEN,
        truncation="middle",
    )
    print(example_report.summary(build_classification(options)))


class Reviews:
    """Fine-tunes on the labelled reviews.

    Args:
        examples: folder of the built sets.
        pretrained: folder of the pretrained run.
        folder: for the runs; those that are finished are not done again.
    """

    def __init__(self, examples: pathlib.Path, pretrained: pathlib.Path, folder: pathlib.Path):
        from official.core import exp_factory

        from xlnet_tf.tasks import classification
        from xlnet_tf.training import runtime

        self._examples, self._pretrained, self._folder = examples, pretrained, folder
        self._strategy = runtime.prepare(exp_factory.get_exp_config(classification.EXPERIMENT).runtime)

    def arm(self, from_scratch: bool, learning_rates: Sequence[float], seeds: Sequence[int]) -> Arm:
        """Chooses the learning rate with the first seed, then trains with the others as well.

        Args:
            from_scratch: take the pretrained model's architecture only, not its weights.
            learning_rates: to choose from.
            seeds: each gives a run.
        """
        tried = {rate: self._finetune(from_scratch, rate, seeds[0]) for rate in learning_rates}
        best = max(tried, key=lambda rate: tried[rate][0])
        rest = [self._finetune(from_scratch, best, seed) for seed in seeds[1:]]
        return Arm(
            learning_rate=best,
            tried={rate: dev for rate, (dev, _) in tried.items()},
            test=tuple(test for _, test in (tried[best], *rest)),
        )

    def _finetune(self, from_scratch: bool, learning_rate: float, seed: int) -> tuple[float, float]:
        """Returns the accuracy on the dev and on the test reviews."""
        from official.core import exp_factory
        from official.modeling import hyperparams

        from xlnet_tf.tasks import classification
        from xlnet_tf.tasks.finetuning import finetune
        from xlnet_tf.tasks.prediction import Predictor, Run

        params = exp_factory.get_exp_config(classification.EXPERIMENT)
        hyperparams.override_params_dict(params, str(RECIPE), is_strict=True)
        params.task.seed = seed
        params.task.train_data.input_path = str(self._examples / "train")
        params.task.validation_data.input_path = str(self._examples / "dev")
        params.trainer.optimizer_config.learning_rate = learning_rate
        if from_scratch:
            params.task.model.config_file = str(self._pretrained / "xlnet_config.json")
        else:
            params.task.init_checkpoint = str(self._pretrained)
        name = f"{'scratch' if from_scratch else 'pretrained'}-{learning_rate:g}-seed-{seed}"
        folder = str(self._folder / name)
        dev = finetune(params, classification.ClassificationTask, self._strategy, folder)["accuracy"]
        run = Run.open(folder, str(self._examples / "test"))
        predictions = Predictor(run, self._strategy, batch_size=50).predict(run.checkpoint("last"))
        test = run.task.score(run.task.validation_set, predictions)["accuracy"]
        print(f"  {name}: {dev:.1%} of the dev reviews right, {test:.1%} of the test reviews", flush=True)
        return dev, test
