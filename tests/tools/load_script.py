"""Loads a program of tools/ as a module, whatever its file is called."""
import importlib.machinery
import importlib.util


def load(path, name):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module
