"""Edits of a source by whole lines or within a line, so that every other line stays byte for byte what it was, and what became of the line numbers."""
import ast
import typing


class Insert(typing.NamedTuple):
    """Lines behind line `after` of the original (0: before the first). `marked` are those, from 0, that are the illness itself."""
    after: int
    lines: typing.Tuple[str, ...]
    marked: typing.Tuple[int, ...] = ()


class Replace(typing.NamedTuple):
    """Characters `begin` to `end` of a line by a text without line breaks."""
    line: int
    begin: int
    end: int
    text: str


class Edited(typing.NamedTuple):
    text: str
    lines: typing.Dict[int, int]             # new line of each original one
    marked: typing.List[typing.List[int]]    # for each edit the new lines that are the illness
    inserted: typing.List[int]               # new lines that the original does not have


def edited(text, edits):
    """Inserts behind the same line stand in the order given. Replacements must not overlap."""
    lines = text.splitlines(keepends=True)
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += ending
    replaced = sorted((edit for edit in edits if isinstance(edit, Replace)), key=lambda edit: (edit.line, -edit.begin))
    for edit in replaced:
        old = lines[edit.line - 1]
        lines[edit.line - 1] = old[:edit.begin] + edit.text + old[edit.end:]
    result, numbers, inserted, marked = [], {}, [], [[] for _ in edits]
    for original in range(len(lines) + 1):
        if original:
            result.append(lines[original - 1])
            numbers[original] = len(result)
        for at, edit in enumerate(edits):
            if isinstance(edit, Insert) and edit.after == original:
                first = len(result) + 1
                result += [line + ending for line in edit.lines]
                inserted += range(first, len(result) + 1)
                marked[at] = [first + number for number in edit.marked]
    for at, edit in enumerate(edits):
        if isinstance(edit, Replace):
            marked[at] = [numbers[edit.line]]
    return Edited("".join(result), numbers, marked, inserted)


class Source:
    """A file of a program: its text, its syntax tree, and the columns of nodes in characters (`ast` has them in bytes)."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def indent(self, line):
        text = self.lines[line - 1]
        return text[:len(text) - len(text.lstrip())]

    def column(self, line, offset):
        return len(self.lines[line - 1].encode()[:offset].decode())

    def begin(self, node):
        return self.column(node.lineno, node.col_offset)

    def end(self, node):
        return self.column(node.end_lineno, node.end_col_offset)

    def text_of(self, node):
        return ast.get_source_segment(self.text, node)

    def replace(self, node, text):
        """Of a node within one line; None for one that spans several."""
        return Replace(node.lineno, self.begin(node), self.end(node), text) if node.lineno == node.end_lineno else None

    def before_closing(self, call, text):
        """`text` as last argument of a call."""
        line, end = call.end_lineno, self.end(call) - 1
        before = self.text_of(call)[:-1].rstrip()
        comma = "" if before.endswith(("(", ",")) else ", "
        return Replace(line, end, end, comma + text)

    def after_imports(self):
        """The line behind which definitions of the module may stand."""
        last = 0
        for node in self.tree.body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            if isinstance(node, (ast.Import, ast.ImportFrom)) or is_docstring and last == 0:
                last = node.end_lineno
        return last

    def imports(self, module):
        """The name under which the file knows a module, None if it does not."""
        for node in ast.walk(self.tree):
            for alias in node.names if isinstance(node, ast.Import) else ():
                if alias.name == module or alias.name.startswith(module + ".") and not alias.asname:
                    return alias.asname or alias.name.split(".")[0]
        return None
