"""Says where loops stand in functions of many shapes, as the source has them, and where their code lies in memory.

Prints `runtime ADDRESS VERSION PID`, then for each function `code ADDRESS NAME` and a `loop FIRST LAST` line per loop, outer ones
first, and `end`; goes on when a line comes in. The functions have run, so that the interpreter has specialised their code.
"""
import ast
import ctypes
import os
import sys


def steps(items):
    total = 0
    for item in items:
        if item % 3 == 0:
            continue
        for inner in range(item):
            total += inner
        total += 1
    return total


def handles(items):
    count = 0
    for item in items:
        try:
            if item % 2:
                raise ValueError(item)
            count += 1
        except ValueError:
            continue
    count += 1
    while True:
        try:
            count += int("1")
        except KeyError:
            continue
        if count > 20:
            break
    with open(os.devnull) as nothing:
        nothing.read()
    return count


def waits(limit):
    at = 0
    while at < limit:
        at += 1
        if at == 3:
            continue
        at += 1
    print(end="")
    return at


def straight(value):
    if value:
        value = abs(value)
    return value


def much(items):
    results = []
    for item in items:
PADDING
        results.append(item)
    return results


functions = [steps, handles, waits, straight, much]
for _ in range(100):
    for function in functions[:2] + functions[4:]:
        function(range(12))
    waits(12)
    straight(-3)

lines = {}
for node in ast.walk(ast.parse(open(__file__).read())):
    if isinstance(node, ast.FunctionDef):
        loops = [each for each in ast.walk(node) if isinstance(each, (ast.For, ast.While))]
        lines[node.name] = sorted(((each.lineno, each.body[-1].end_lineno) for each in loops), key=lambda loop: (loop[0], -loop[1]))
print("runtime", ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")), sys.hexversion, os.getpid())
for function in functions:
    print("code", id(function.__code__), function.__name__)
    for first, last in lines[function.__name__]:
        print("loop", first, last)
print("end", flush=True)
sys.stdin.readline()
