"""Takes the pictures of the page that explains XLNet, docs/how-to/pictures/, with a model of our own text.

python -m tests.docs.generators.screenshots

Pretrains a small model on invented sentences, in which words depend on each other, and drives the page in
chromium. The model takes some ten minutes on two CPU cores; --model_dir keeps it.
"""

import pathlib
import shutil
from collections.abc import Iterator, Sequence

import numpy as np
import sentencepiece
from absl import app, flags
from PIL import Image

import xlnet_tf  # noqa: F401 (chooses tf_keras before TensorFlow is loaded)
from examples.demo import pretraining
from tests.helpers.serving.page_server import page_server
from tfrecord_builders.pretraining import build as builder
from xlnet_tf import files
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.serving.page.explainer import Explainer
from xlnet_tf.text import special_tokens, training

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
FOLDER = DOCS / "how-to/pictures"
SETTLED = "body:not(:has([aria-busy]))"
VOCAB_SIZE = 900
DOCUMENTS = {"train": 12_000, "dev": 60}
RECIPE = """
task:
  model: {preset: tiny, n_layer: 4, d_model: 128, n_head: 4, d_head: 32, d_inner: 512, memory_len: 0,
    dropout: 0.0, attention_dropout: 0.0, initializer_range: 0.09}
  train_data: {global_batch_size: 16}
trainer:
  train_steps: 1000
  steps_per_loop: 10
  validation_interval: 250
  checkpoint_interval: 250
  optimizer_config: {learning_rate: 0.0015, warmup_steps: 100, beta_2: 0.98}
"""
# Each with its country, and how often it is written of.
CITIES = {
    "New York": ("America", 12), "New Orleans": ("America", 2), "Los Angeles": ("America", 8),
    "San Francisco": ("America", 4), "San Diego": ("America", 2), "Hong Kong": ("China", 4),
    "Buenos Aires": ("Argentina", 3), "New Delhi": ("India", 4), "Cape Town": ("Africa", 3),
    "Tel Aviv": ("Israel", 2), "Saint Petersburg": ("Russia", 3), "London": ("England", 4),
    "Paris": ("France", 4), "Berlin": ("Germany", 3), "Rome": ("Italy", 3), "Tokyo": ("Japan", 4),
}  # fmt: skip
PEOPLE = {
    "her": "Ada Mary Grace Emmy Sofia Rosa Lucy Clara",
    "his": "Charles John Alan Paul Henry Oscar Peter Leo",
}
ANIMALS = {
    "dog": "barks in the garden", "cat": "sleeps in the kitchen", "bird": "sings in the tree",
    "horse": "runs in the field", "fish": "swims in the river",
}  # fmt: skip
SEASONS = {"spring": "warm", "summer": "hot", "autumn": "windy", "winter": "cold"}
JOBS = {
    "doctor": "hospital", "teacher": "school", "baker": "bakery", "painter": "studio", "writer": "library",
    "singer": "theatre", "pilot": "airport",
}  # fmt: skip


def documents(rng: np.random.Generator, count: int) -> Iterator[str]:
    """Yields invented texts of one person each, a sentence a line."""
    shares = np.array([share for _, share in CITIES.values()], float)
    for _ in range(count):
        its = str(rng.choice([*PEOPLE]))
        she, her = ("she", "her") if its == "her" else ("he", "him")
        person = rng.choice(PEOPLE[its].split())
        lines = []
        for _ in range(rng.integers(6, 14)):
            city, other = rng.choice([*CITIES], 2, replace=False, p=shares / shares.sum())
            animal, season, job = (str(rng.choice([*words])) for words in (ANIMALS, SEASONS, JOBS))
            sentences = (
                f"{person} lives in {city}, the largest city of {CITIES[city][0]}.",
                f"I live in {city}, the largest city of {CITIES[city][0]}.",
                f"{city} is a city in {CITIES[city][0]}.",
                f"{city} is a very big city, and nobody sleeps there.",
                f"The train from {city} to {other} leaves in the morning.",
                f"They moved from {city} to {other} last {season}.",
                f"In {season} it is {SEASONS[season]} in {city}.",
                f"{person} loves {its} {animal}, and the {animal} loves {her}.",
                f"The {animal} of {person} {ANIMALS[animal]}.",
                f"{person} is a {job} and works in the {JOBS[job]}.",
                f"{person} was born in {city}, but {she} lives in {other}, in {CITIES[other][0]}.",
            )
            lines.append(str(rng.choice(sentences)))
        yield "\n".join(lines)


def make_model(folder: pathlib.Path) -> pathlib.Path:
    """Pretrains the model in a folder, or resumes where an earlier run stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for split, count in DOCUMENTS.items():
        files.write(folder / f"{split}.txt", "\n\n".join(documents(rng, count)) + "\n")
    tokenizer = folder / "tokenizer/spiece.model"
    if not tokenizer.exists():
        tokenizer.parent.mkdir(exist_ok=True)
        # Unlike ours, which are unigram models, it has a piece for each word of so small a text.
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "train.txt"), model_prefix=str(tokenizer.with_suffix("")), model_type="bpe",
            vocab_size=VOCAB_SIZE, hard_vocab_limit=False, input_sentence_size=20_000, minloglevel=2,
            control_symbols=training.CONTROL_SYMBOLS, user_defined_symbols=training.USER_DEFINED_SYMBOLS,
            unk_id=special_tokens.UNK_ID, bos_id=special_tokens.BOS_ID, eos_id=special_tokens.EOS_ID,
        )  # fmt: skip

    def build(split: str):
        options = builder.PretrainingOptions(
            input=[str(folder / f"{split}.txt")], tokenizer=str(tokenizer), split=split,
            output_dir=str(folder / "records" / split), seq_len=96, reuse_len=48, num_predict=24,
            mask_alpha=4, span_mode="single", stream_segments=16, slice_mb=1.0,
        )  # fmt: skip
        return builder.build_pretraining_records(options)

    records = [build(split) for split in DOCUMENTS]
    files.write(folder / "recipe.yaml", RECIPE)
    pretraining.make_model(str((folder / "recipe.yaml").resolve()), *records, folder / "run")
    return folder / "run"


def take(address: str, folder: pathlib.Path) -> None:
    """Drives the page and takes the pictures."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox"],  # as root in a container
        )

        def opened(width: int, scheme: str):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto(address)
            page.wait_for_selector("#grids table")
            page.select_option("#fill-preset", "backward")
            page.wait_for_selector(SETTLED)
            for button in ("Fill gap 2 with Angeles", "Fill the next gap"):
                page.get_by_role("button", name=button).click()
                page.wait_for_selector(SETTLED)
            page.select_option("#score-preset", "backward")
            page.wait_for_selector(SETTLED)
            return page

        page = opened(900, "light")
        page.locator("#fill").screenshot(path=folder / "page_gaps.png")
        page.locator("#inside").screenshot(path=folder / "page_masks.png")
        page = opened(900, "dark")
        page.select_option("#show", "attention")
        page.locator("#inside").screenshot(path=folder / "page_attention.png")
        page = opened(360, "light")
        page.locator("#score").screenshot(path=folder / "page_narrow.png")
        browser.close()
    for path in folder.glob("page_*.png"):
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


def main(_: Sequence[str]) -> None:
    run = make_model(pathlib.Path(flags.FLAGS.model_dir))
    model = XLNetLanguageModel.from_pretrained(run)
    with page_server(Explainer(model, "cities")) as address:
        take(address, pathlib.Path(flags.FLAGS.output_dir))


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", "runs/screenshots", "Where the model is trained, or has been.")
    flags.DEFINE_string("output_dir", str(FOLDER), "Where the pictures go.")
    app.run(main)
