"""Mutation testing: small faults are put into modules, one at a time, and the modules' tests must find them.

    python -m tests.mutants --count=150 --seed=0 --output=/tmp/mutants.json

draws places in the code at random, and at each one of the faults below; prints whether the tests killed the
mutant, the difference of each that survived, and the share of those killed.

The tools that there are do not fit: mutmut leaves out decorated functions, and forks after TensorFlow has
run, when its threads are gone; cosmic-ray starts a Python for each mutant, ten seconds with TensorFlow. Here
one process imports TensorFlow, and forks for each mutant. A mutant is written to a temporary file that only
the fork imports, so the working tree is never touched.
"""

import ast
import collections
import difflib
import fnmatch
import importlib.util
import json
import os
import pathlib
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
import tf_keras  # noqa: F401
from absl import app, flags

# Imported once, for all mutants; what is ours among it each fork imports again.
import tests.conftest  # noqa: F401
import xlnet_tf.records.reader  # noqa: F401

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
CPU_SECONDS = 200  # after which a mutant counts as killed: it hangs

_LAYERS = (
    "tests/layers/test_units.py",
    "tests/models/test_any_configuration.py::test_equals_the_equations",
    "tests/models/test_golden.py",
    "tests/models/test_properties.py",
    "tests/models/test_any_configuration.py",
)
# The tests of each module, the cheap ones first; the first pattern that a module matches counts.
TESTS = {
    "xlnet_tf/records/ranks.py": ("tests/records/test_ranks.py",),
    "xlnet_tf/records/spans.py": ("tests/records/test_spans.py",),
    "xlnet_tf/records/segments.py": ("tests/records/test_segments.py",),
    "tfrecord_builders/pretraining/compat_sampling.py": (
        "tests/tfrecord_builders/pretraining/test_compat_sampling.py",
    ),
    "xlnet_tf/records/online.py": ("tests/records/test_online.py",),
    "tfrecord_builders/conversion/*.py": (
        "tests/tfrecord_builders/conversion/test_convert.py",
        "tests/tfrecord_builders/conversion/test_original_format.py",
        "tests/tfrecord_builders/conversion/test_model_garden_format.py",
    ),
    "tfrecord_builders/inspection/invariants.py": ("tests/tfrecord_builders/inspection/test_check.py",),
    "tfrecord_builders/inspection/recovered_text.py": (
        "tests/tfrecord_builders/inspection/test_check.py",
        "tests/tfrecord_builders/corpus/test_corpus.py",
    ),
    "xlnet_tf/records/splitmix64.py": (
        "tests/tfrecord_builders/pretraining/test_dedup.py",
        "tests/records/test_online.py",
        "tests/records/test_reader.py",
    ),
    "xlnet_tf/records/manifest.py": ("tests/records/test_manifest.py", "tests/records/test_reader.py"),
    "xlnet_tf/records/reader.py": ("tests/records/test_reader.py",),
    "xlnet_tf/records/batching.py": ("tests/records/test_batching.py", "tests/records/test_examples.py"),
    "xlnet_tf/records/example_reader.py": (
        "tests/records/test_example_table.py",
        "tests/records/test_examples.py",
        "tests/records/test_batching.py",
    ),
    "xlnet_tf/records/example_report.py": (
        "tests/records/test_examples.py",
        "tests/tfrecord_builders/classification/test_build.py",
    ),
    "xlnet_tf/records/examples.py": ("tests/records/test_examples.py", "tests/records/test_batching.py"),
    "tfrecord_builders/pretraining/report.py": ("tests/tfrecord_builders/pretraining/test_report.py",),
    "xlnet_tf/records/input_counts.py": ("tests/tfrecord_builders/classification/test_build.py",),
    "xlnet_tf/records/passages.py": ("tests/tfrecord_builders/squad/test_build.py",),
    "xlnet_tf/records/job_notes.py": ("tests/records/test_job_notes.py",),
    "xlnet_tf/records/*.py": ("tests/records/test_spec_and_shards.py", "tests/records/test_examples.py"),
    "xlnet_tf/layers/summary.py": ("tests/layers/test_summary.py", "tests/models/test_heads.py"),
    "xlnet_tf/layers/kernels/position_rotation.py": (
        "tests/layers/kernels",
        "tests/models/test_any_configuration.py",
    ),
    "xlnet_tf/layers/kernels/*.py": ("tests/layers", *_LAYERS),
    "xlnet_tf/layers/*.py": _LAYERS,
}

_SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def faults(tree: ast.Module) -> Iterator[list]:
    """Finds the places of a module, and for each the faults that it may get.

    Yields:
        [(what kind of fault, function that puts it into the tree)], for each place.
    """
    for node in _code(tree):
        found = []
        match node:
            case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in _SWAPS:
                found.append(("operator", _setter(node, "op", _SWAPS[type(node.op)]())))
            case ast.Compare() if type(node.ops[0]) in _SWAPS:
                found.append(
                    ("comparison", _setter(node, "ops", [_SWAPS[type(node.ops[0])](), *node.ops[1:]]))
                )
            case ast.UnaryOp():
                found.append(("operator left out", _replacer(node, node.operand)))
            case ast.Constant(value=bool(value)):
                found.append(("constant", _setter(node, "value", not value)))
            case ast.Constant(value=int(value) | float(value)):
                others = [value + change for change in (1, -1) if value + change != value]
                found += [("constant", _setter(node, "value", other)) for other in others]
            case ast.If() | ast.IfExp() | ast.While():
                found.append(("condition", _setter(node, "test", ast.UnaryOp(ast.Not(), node.test))))
            case ast.Return() if node.value is not None:
                found.append(("result", _setter(node, "value", ast.Constant(None))))
            case ast.Call() if node.keywords:
                for keyword in node.keywords:
                    rest = [other for other in node.keywords if other is not keyword]
                    found.append(("argument left out", _setter(node, "keywords", rest)))
        if isinstance(node, ast.Expr | ast.AugAssign | ast.Raise):
            found.append(("statement left out", _replacer(node, ast.Pass())))
        if found:
            yield found


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Walks a tree, but for annotations, documentation and formatted text."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            documentation = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not documentation and not isinstance(child, ast.JoinedStr):
                yield child
                yield from _code(child)


def _setter(node, field, value):
    return lambda tree: setattr(node, field, value)


def _replacer(node, other):
    def replace(tree):
        class Replacer(ast.NodeTransformer):
            def visit(self, found):
                return other if found is node else self.generic_visit(found)

        Replacer().visit(tree)

    return replace


def draw_mutant(module: str, rng: random.Random, number: int) -> tuple[str, str, str]:
    """Puts a fault into a module.

    Args:
        module: path of the file.
        rng: what draws among the faults of the place.
        number: of the place.

    Returns:
        The kind of fault, the new source, and the difference.
    """
    source = (REPOSITORY / module).read_text(encoding="utf-8")
    tree = ast.parse(source)
    kind, put = rng.choice(list(faults(tree))[number])
    put(tree)
    mutant = ast.unparse(ast.fix_missing_locations(tree))
    lines = [text.splitlines() for text in (ast.unparse(ast.parse(source)), mutant)]
    difference = "\n".join(difflib.unified_diff(*lines, module, module, lineterm="", n=1))
    return kind, mutant, difference


def survives(module: str, source: str) -> bool:
    """Runs the tests of a module on another source of it, in a fork.

    Args:
        module: path of the file.
        source: what to run in its place.
    """
    child = os.fork()
    if not child:
        try:
            os._exit(_test(module, source))
        finally:
            os._exit(99)
    _, status = os.waitpid(child, 0)
    return status == 0


def _test(module: str, source: str) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    name = module.removesuffix(".py").replace("/", ".")
    for ours in [ours for ours in sys.modules if ours.startswith(("xlnet_tf", "tests"))]:
        del sys.modules[ours]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / pathlib.Path(module).name
        path.write_text(source, encoding="utf-8")

        class Finder:
            @staticmethod
            def find_spec(wanted, *_):
                return importlib.util.spec_from_file_location(name, path) if wanted == name else None

        sys.meta_path.insert(0, Finder)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/tests"]
        options += ["--hypothesis-profile=unshrunk"]
        return pytest.main([*options, *tests_of(module)])


def tests_of(module: str) -> tuple[str, ...]:
    """Returns the tests of a module."""
    return next(tests for pattern, tests in TESTS.items() if fnmatch.fnmatch(module, pattern))


def main(argv):
    del argv
    options = flags.FLAGS
    os.chdir(REPOSITORY)
    paths = sorted({path for pattern in options.modules for path in REPOSITORY.glob(pattern)})
    modules = [str(path.relative_to(REPOSITORY)) for path in paths if path.name != "__init__.py"]
    for needed in dict.fromkeys(map(tests_of, modules)):
        module = next(module for module in modules if tests_of(module) == needed)
        if not options.unchecked and not survives(module, (REPOSITORY / module).read_text(encoding="utf-8")):
            sys.exit(f"{' '.join(needed)} fail without any fault")
    places = [
        (module, number)
        for module in modules
        for number, _ in enumerate(faults(ast.parse((REPOSITORY / module).read_text(encoding="utf-8"))))
    ]
    rng = random.Random(options.seed)
    results = []
    for module, number in rng.sample(places, min(options.count, len(places))):
        kind, source, difference = draw_mutant(module, rng, number)
        begin = time.monotonic()
        survived = survives(module, source)
        results.append(
            {
                "module": module,
                "place": number,
                "fault": kind,
                "survived": survived,
                "seconds": round(time.monotonic() - begin, 1),
                "difference": difference,
            }
        )
        print(f"{len(results):4} {'SURVIVED' if survived else 'killed':8} {module} {kind}", flush=True)
        if survived:
            print(difference, flush=True)
        if options.output:
            pathlib.Path(options.output).write_text(json.dumps(results, indent=1), encoding="utf-8")
    counts = collections.Counter(result["survived"] for result in results)
    print(f"{counts[False]} of {len(results)} mutants killed: {counts[False] / len(results):.1%}")


if __name__ == "__main__":
    flags.DEFINE_integer("count", 150, "How many mutants.")
    flags.DEFINE_integer("seed", 0, "Of the sample.")
    flags.DEFINE_list("modules", list(TESTS), "Which modules: patterns of their paths.")
    flags.DEFINE_string("output", None, "A json file for the results.")
    flags.DEFINE_bool("unchecked", False, "Do not run the tests without a fault first.")
    app.run(main)
