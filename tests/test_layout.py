"""The layout explains itself: what imports, folders and package docstrings must look like."""

import ast
import collections
import functools
import itertools
import pathlib
import re
from collections.abc import Iterator

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
INSTALLED = ("xlnet_tf", "tfrecord_builders", "run_scripts")
SOURCES = (*INSTALLED, "examples", "benchmarks")
MOST_ENTRIES = 24  # modules and folders in a folder
MOST_LINES, MOST_FUNCTION_LINES, MOST_METHODS = 400, 60, 25

_BELOW_TASKS = tuple(f"xlnet_tf.serving.{name}" for name in ("answers", "graph", "openvino"))
# From the bottom to the top: a module imports from its own floor and from those below it.
FLOORS = (
    ("xlnet_tf", "xlnet_tf.cli", "xlnet_tf.pages"),  # single modules: errors, files, ...; what commands share
    ("xlnet_tf.hub", "xlnet_tf.layers"),
    ("xlnet_tf.text",),
    ("xlnet_tf.records",),
    ("xlnet_tf.checkpoints", "tfrecord_builders"),
    ("xlnet_tf.models", "xlnet_tf.training"),
    ("xlnet_tf.generation", "xlnet_tf.tpu", *_BELOW_TASKS),
    ("xlnet_tf.tasks",),
    ("xlnet_tf.serving", "xlnet_tf.verification"),
    ("run_scripts",),
    ("examples",),  # these two are not installed
    ("benchmarks",),
)

# Lines of Python in each folder, at most: a budget whose sum only gets smaller.
MOST_IN_ALL = {
    "xlnet_tf": 37_955,
    "tfrecord_builders": 12_270,
    "run_scripts": 6_516,
    "benchmarks": 3_372,
    "examples": 995,
    "tests": 46_559,
}
# What is larger than it should be, with its size: nothing is added here, and it goes once it is small enough.
LARGER: dict[str, int] = {}


def module_files() -> dict[str, pathlib.Path]:
    """Returns the files of all modules, by dotted name; a package goes by its folder's name."""
    files = {}
    for source in SOURCES:
        for path in sorted((REPOSITORY / source).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


MODULES = module_files()
PACKAGES = {name: path for name, path in MODULES.items() if path.name == "__init__.py"}


@functools.cache
def parsed(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


@functools.cache
def imports(name: str) -> frozenset[str]:
    """Returns the project's modules that one imports: at its top, in its functions, and for its types."""
    body = parsed(name).body
    if name == "xlnet_tf":  # the names for users, loaded when they are used
        body = [node for node in body if not isinstance(node, ast.If)]
    found = set()
    for node in itertools.chain.from_iterable(map(ast.walk, body)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {full if full in MODULES else node.module for full in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset((found & set(MODULES)) - {name})


@functools.cache
def defined(name: str) -> frozenset[str]:
    """Returns the names of a module: definitions, assignments and imports; of a package, its modules."""
    found = {other.rpartition(".")[2] for other in MODULES if other.rpartition(".")[0] == name}
    nodes = list(parsed(name).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            if isinstance(node, ast.Import | ast.ImportFrom):
                found |= {alias.asname or alias.name for alias in node.names}
            names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            found |= {each.id for each in names if isinstance(each.ctx, ast.Store)}
            inner = (ast.stmt, ast.ExceptHandler)
            nodes += [each for each in ast.iter_child_nodes(node) if isinstance(each, inner)]
    return frozenset(found)


def floor_of(module: str) -> int:
    """Returns the number of a module's floor, 0 for the lowest."""
    package = module if module in PACKAGES else module.rpartition(".")[0]
    while package:
        for number, packages in enumerate(FLOORS):
            if package in packages:
                return number
        package = package.rpartition(".")[0]
    raise AssertionError(f"{module} belongs to no floor of FLOORS")


def test_imports_never_run_upward():
    pairs = ((name, other) for name in MODULES for other in imports(name))
    assert not [f"{name} imports {other}" for name, other in pairs if floor_of(other) > floor_of(name)]


def test_only_the_registry_names_what_lies_above_it():
    """As "module:name", which is imported when it is asked for."""
    reference = re.compile(rf"((?:{'|'.join(SOURCES)})(?:\.\w+)+):(\w+)")
    naming = set()
    for name in MODULES:
        strings = [node.value for node in ast.walk(parsed(name)) if isinstance(node, ast.Constant)]
        matches = [reference.fullmatch(text) for text in strings if isinstance(text, str)]
        for module, attribute in (match.groups() for match in matches if match):
            assert module in MODULES and attribute in defined(module), f"{name}: {module}:{attribute}"
            if floor_of(module) > floor_of(name):
                naming.add(name)
    assert naming == {"xlnet_tf.task_registry"}


def test_builders_import_no_model_code():
    model_code = re.compile(r"xlnet_tf\.(layers|models|training|tasks|checkpoints)\b")
    builders = [name for name in MODULES if name.startswith("tfrecord_builders")]
    assert not [(name, other) for name in builders for other in imports(name) if model_code.match(other)]


def test_no_import_cycles():
    done, path = set(), []

    def visit(name):
        assert name not in path, f"import cycle: {' -> '.join([*path[path.index(name) :], name])}"
        if name in done:
            return
        path.append(name)
        for other in sorted(imports(name)):
            visit(other)
        path.pop()
        done.add(name)

    for name in MODULES:
        visit(name)


def test_imported_names_exist():
    lost = []
    for name in MODULES:
        tree = parsed(name)
        called: dict[str, str] = {}  # module by the name that it has here
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                full = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                called |= {short: module for short, module in full.items() if module in MODULES}
                if node.module in MODULES and node.module != "xlnet_tf":
                    taken = {alias.name for alias in node.names} - defined(node.module)
                    lost += [f"{name}: {node.module}.{one}" for one in taken]
        parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = None if node.value.id in parameters else called.get(node.value.id)
                if module and node.attr not in {"__file__", "__name__", *defined(module)}:
                    lost.append(f"{name}: {module}.{node.attr}")
    assert not lost


def test_no_cache_is_on_a_method():
    """It would keep each object, a model say, as long as the process lives; cached_property goes with it."""
    caching = re.compile(r"functools\.(?:lru_)?cache\b")
    found = [
        f"{name}: {class_.name}.{method.name}"
        for name in MODULES
        for class_ in ast.walk(parsed(name))
        if isinstance(class_, ast.ClassDef)
        for method in class_.body
        if isinstance(method, ast.FunctionDef)
        and any(map(caching.match, map(ast.unparse, method.decorator_list)))
    ]
    assert not found


def test_only_kernels_ask_for_the_device():
    """Besides those that set up the devices of a run, or describe them."""
    question = re.compile(r"\bhardware\(\)|list_(?:logical|physical)_devices|\bTPUStrategy\b|\bdevice_type\b")
    of_runs = {f"xlnet_tf.training.{name}" for name in ("runtime", "interruption")}
    asking = {
        name
        for name, path in MODULES.items()
        if not name.startswith(("xlnet_tf.layers.kernels", "run_scripts", "benchmarks"))
        and question.search(path.read_text())
    }
    assert asking <= of_runs


def test_attention_is_short_and_knows_no_hardware():
    text = MODULES["xlnet_tf.layers.attention"].read_text()
    assert len(text.splitlines()) <= 200
    assert not re.findall(r"\b(?:cpu|gpu|tpu|xla|hardware|onednn)s?\b", text, re.IGNORECASE)


def folders() -> dict[str, list[str]]:
    """Returns the names of each folder's modules and folders; the top folders have one for each part."""
    found = collections.defaultdict(list)
    for source in (*SOURCES, "tests"):
        for path in (REPOSITORY / source).rglob("*.py"):
            if path.name != "__init__.py":
                found[str(path.parent.relative_to(REPOSITORY))].append(path.stem)
            elif len(path.relative_to(REPOSITORY).parts) > 3:
                found[str(path.parents[1].relative_to(REPOSITORY))].append(f"{path.parent.name}/")
    return found


@pytest.mark.parametrize(("folder", "entries"), sorted(folders().items()), ids=lambda value: str(value)[:40])
def test_a_folder_can_be_held_in_mind(folder, entries):
    assert len(entries) <= MOST_ENTRIES, sorted(entries)
    prefixes = collections.Counter(
        name.split("_")[0] for name in entries if not name.startswith(("test_", "__")) and name[-1] != "/"
    )
    shared = [prefix for prefix, count in prefixes.items() if count >= 3]
    assert not shared, f"three modules begin with {shared}: a prefix is a folder"


def sizes() -> Iterator[tuple[str, int, int]]:
    """Yields each file, function and class with its size, and the largest that it may have."""
    for path in sorted(path for top in MOST_IN_ALL for path in (REPOSITORY / top).rglob("*.py")):
        name, text = str(path.relative_to(REPOSITORY)), path.read_text()
        yield name, text.count("\n"), MOST_LINES
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                yield f"{name}:{node.name}", node.end_lineno - node.lineno + 1, MOST_FUNCTION_LINES
            elif isinstance(node, ast.ClassDef):
                methods = sum(isinstance(each, ast.FunctionDef) for each in node.body)
                yield f"{name}:{node.name}", methods, MOST_METHODS


def test_nothing_is_too_large_to_be_held_in_mind():
    larger = {name: size for name, size, most in sizes() if size > most}
    grown = {name: size for name, size in larger.items() if size > LARGER.get(name, 0)}
    assert not grown, "split or shorten these"
    assert LARGER.keys() <= larger.keys(), f"take out of LARGER: {LARGER.keys() - larger.keys()}"


@pytest.mark.parametrize("top", MOST_IN_ALL)
def test_the_code_gets_no_longer(top):
    """Who makes it shorter lowers the figure; who has to raise one says why in the commit."""
    assert sum(path.read_text().count("\n") for path in (REPOSITORY / top).rglob("*.py")) <= MOST_IN_ALL[top]


def test_the_top_of_run_scripts_has_short_commands_only():
    for path in sorted((REPOSITORY / "run_scripts").glob("*.py")):
        if path.name != "__init__.py":
            text = path.read_text()
            assert 'if __name__ == "__main__":' in text, path.name
            assert len(text.splitlines()) < 200, path.name


@pytest.mark.parametrize(
    "path",
    [*PACKAGES.values(), *sorted((REPOSITORY / "tests").rglob("__init__.py"))],
    ids=lambda path: str(path.parent.relative_to(REPOSITORY)),
)
def test_every_package_says_what_it_contains_and_where_to_begin(path):
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    begin = re.search(r"\bbegin with `?([\w/.]+\.(?:py|md))\b", text, re.IGNORECASE)
    assert begin and (path.parent / begin[1]).is_file()


def texts() -> dict[pathlib.Path, str]:
    """Returns what people read by file: documents and sources, and of tests the modules' docstrings."""
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    found = {
        path: path.read_text() for path in (*documents, *MODULES.values()) if path.name != "CHANGELOG.md"
    }
    for path in (REPOSITORY / "tests").rglob("*.py"):
        docstring = re.match(r'r?"""(.*?)"""', path.read_text(), re.DOTALL)
        found[path] = docstring[1] if docstring else ""
    return found


def test_files_that_texts_name_exist():
    # Without CAPITALS, which stand for a name, and without what follows a URL or a variable.
    name = re.compile(r"(?<![\w/.$}*<-])(?:[a-z_0-9]+/)+[a-z_0-9]+\.(?:py|md|yaml)\b")
    tops = (REPOSITORY, *(REPOSITORY / source for source in SOURCES))
    lost = [
        f"{path.relative_to(REPOSITORY)}: {found}"
        for path, text in texts().items()
        for found in name.findall(text)
        if not found.startswith("reference/")  # docs/reference is written when the site is built
        and not any((top / found).exists() for top in (*tops, path.parent))
    ]
    assert not lost


def test_modules_that_texts_name_exist():
    name = re.compile(rf"\b(?:{'|'.join(INSTALLED)})(?:\.[a-z_0-9]+)+(?![\w./-])")
    lost = [
        f"{path.relative_to(REPOSITORY)}: {found}"
        for path, text in texts().items()
        for found in name.findall(text)
        if found not in MODULES and not is_attribute(*found.rsplit(".", 1))
    ]
    assert not lost


def is_attribute(module: str, name: str) -> bool:
    return module in MODULES and re.search(rf"\b{name}\b", MODULES[module].read_text()) is not None
