"""Runs the python blocks of a page, one after another, in one namespace; prints like a notebook.

A line of stdin is a request, json [code, name for tracebacks, file for stdout, file for stderr]; a line of
stdout the answer: whether it ran to its end.
"""

import ast
import json
import os
import sys
import traceback


def run(code: str, name: str, namespace: dict) -> bool:
    """Runs a block; shows the value of an expression at its end. Returns whether it raised nothing."""
    try:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            if value is not None:
                print(repr(value))
    except BaseException as error:
        traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        return False
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return True


def main():
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    namespace = {"__name__": "__main__"}
    sys.path.insert(0, os.getcwd())
    for line in requests:
        code, name, *outputs = json.loads(line)
        for number, path in enumerate(outputs, 1):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, number)
            os.close(file)
        print(json.dumps(run(code, name, namespace)), file=answers, flush=True)


if __name__ == "__main__":
    main()
