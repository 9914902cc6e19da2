"""Asks Hugging Face's transformers in a process of its own, whose Python the environment names.

XLNET_TRANSFORMERS_PYTHON=~/peer/bin/python python -m pytest -m integration -k transformers
"""

import json
import os
import subprocess
from typing import Any

import pytest

VARIABLE = "XLNET_TRANSFORMERS_PYTHON"
_PROGRAM = """
import json, sys
inputs = json.load(sys.stdin)
{code}
print("\\n" + json.dumps(answer(**inputs)))
"""


def ask(code: str, **inputs: Any) -> Any:
    """Returns what `answer`, which `code` defines, computes of inputs as JSON has them in that process.

    Skips the test if no Python is named.
    """
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no Python with transformers and torch: no comparison with them")
    environment = {"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(
        [python, "-c", _PROGRAM.format(code=code)],
        input=json.dumps(inputs),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
