"""The long demo's task: does a review praise its film? To learn from a few thousand labelled reviews."""

import csv
import itertools

from examples.demo import corpus
from examples.demo.finetuning import DemoTask
from xlnet_tf import files

REVIEWS = {"train": 2000, "dev": 500, "test": 1000}
NAMES = {"0": "negative", "1": "positive"}


class Reviews(DemoTask):
    """Is a review positive?"""

    NAME = "reviews"
    TITLE = "Does a review praise its film?"
    TASK = "classification"
    METRIC = "accuracy"
    LABELS = f"{REVIEWS['train']:,} reviews"
    BASELINE = "TF-IDF, logistic regression"
    EXAMPLE = "a fine film with a great cast"

    def write(self, corpora, folder):
        folder.mkdir(parents=True, exist_ok=True)
        rows = ((" ".join(lines), NAMES[label]) for lines, label in corpus.unseen_reviews(corpora))
        for split, count in REVIEWS.items():
            with files.replacing(folder / f"{split}.csv") as file:
                csv.writer(file).writerows([("text", "label"), *itertools.islice(rows, count)])

    def make_examples(self, folder, tokenizer, examples):
        """Builds the examples; of a long review its beginning and its end are kept."""
        from tfrecord_builders.classification.build import build_classification
        from tfrecord_builders.classification.options import ClassificationOptions
        from xlnet_tf.records import example_report

        options = ClassificationOptions(
            tokenizer=str(tokenizer),
            output_dir=str(examples),
            **{split: str(folder / f"{split}.csv") for split in REVIEWS},
            seq_len=128,
            truncation="middle",
            lower=True,
        )
        print(example_report.summary(build_classification(options)))

    def baseline(self, folder):
        """Logistic regression on TF-IDF of words and word pairs, its strength chosen on the dev reviews."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        (texts, labels), dev, test = (_table(folder / f"{split}.csv") for split in REVIEWS)
        features = vectorizer.fit_transform(texts)
        models = [LogisticRegression(C=c, max_iter=1000).fit(features, labels) for c in (1, 10, 100)]

        def score(model, split):
            return float(model.score(vectorizer.transform(split[0]), split[1]))

        return score(max(models, key=lambda model: score(model, dev)), test)

    def answers(self, folder, test, predictions):
        texts, labels = _table(folder / "test.csv")
        chosen = (test.settings["labels"][label] for label in predictions["outputs"].argmax(-1))
        return [(f"{text[:150]}...", *both) for text, *both in zip(texts, labels, chosen)]


def _table(path) -> tuple[list[str], list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]
