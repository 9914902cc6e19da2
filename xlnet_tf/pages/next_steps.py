"""The commands that people want after a training."""

import shlex
from collections.abc import Mapping
from typing import Any

_CHARACTERS = 60  # of a text in a command


def after_finetuning(model_dir: str, task: str, example: Mapping[str, Any], dev: str) -> list[str]:
    """Returns commands that use a fine-tuned run of a task of task_registry.

    They ask about the texts of `example`, a line of a set's examples.jsonl; `dev` is the folder of the dev
    examples, "" if there are none.
    """
    inputs = {
        "question_answering": {"question": example.get("question", "..."), "context": "..."},
        "multiple_choice": {"context": "...", "question": "...", "option": "..."},
        "ranking": {"query": example.get("query", "..."), "candidate": "..."},
    }.get(task, {"text": _text(example)})
    if "text_pair" in example:
        inputs["text_pair"] = example["text_pair"]
    asked = " ".join(f"--{name}={_quoted(short(text))}" for name, text in inputs.items())
    run, served, data = map(shlex.quote, (model_dir, f"{model_dir}-served", dev))
    return [
        f"xlnet-tf predict --model_dir={run} {asked}",
        *([f"xlnet-tf evaluate --model_dir={run} --data={data}"] if dev else []),
        f"xlnet-tf export --model_dir={run} --output_dir={served}",
        f"xlnet-tf serve --model={served}",
    ]


def after_pretraining(model_dir: str) -> list[str]:
    """Returns commands that use a pretrained run."""
    run = shlex.quote(model_dir)
    return [
        f'xlnet-tf fill-mask --model_dir={run} --text="The <mask> of the <mask> ."',
        f'xlnet-tf generate --model_dir={run} --prompt="The"',
        f"xlnet-tf finetune --train=YOUR_TABLE.csv --init_checkpoint={run}",
    ]


def _quoted(text: str) -> str:
    """Returns a word for the shell; a text with apostrophes is in double quotes, if it can be."""
    return f'"{text}"' if "'" in text and not {*text} & {*'"$`\\!'} else shlex.quote(text)


def _text(example: Mapping[str, Any]) -> str:
    parts = example.get("parts")
    return example.get("text") or (parts[0]["text"] if parts else "") or "..."


def short(text: str, most: int = _CHARACTERS) -> str:
    """Returns the beginning of a text, in one line."""
    words = " ".join(text.split())
    return words if len(words) <= most else words[:most].rpartition(" ")[0] or words[:most]
