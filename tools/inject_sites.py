"""Where a training program does what, by its syntax tree: the loops that train, the statement that ends a step, models, data sets, evaluations."""
import ast
import re
import typing

from inject_source import Insert

OPTIMIZER = re.compile(r"optim|adam|sgd|adadelta|adagrad|rmsprop|lbfgs|^opt", re.I)
SCALER, NO_OPTIMIZER = re.compile(r"scaler|accelerator|fabric", re.I), re.compile(r"sched|prof|warmup", re.I)
COUNT = '__import__("step_counter").tick()'
HOOK = '__import__("step_counter").hook()'
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise)


class Place(typing.NamedTuple):
    """Where lines can be inserted. `what` is loop, forward or method; `tensor` is a name that holds a tensor there, `model` one of the model."""
    source: typing.Any
    after: int
    indent: str
    what: str
    tensor: typing.Optional[str]
    model: typing.Optional[str]
    calls: float = 1.0  # how often per step


def same_scope(node):
    """The nodes below it, but not those of functions and classes inside."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, FUNCTIONS + (ast.Lambda, ast.ClassDef)):
            yield from same_scope(child)


def dotted(node):
    """a.b.c of a name or attribute, "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def calls_in(node):
    return [each for each in [node, *same_scope(node)] if isinstance(each, ast.Call)]


def is_optimizer(node, known):
    name = dotted(node)
    return bool(name) and not NO_OPTIMIZER.search(name) and (name in known or bool(OPTIMIZER.search(name.split(".")[-1])))


def is_update(call, known):
    """optimizer.step(), scaler.step(optimizer)"""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    return is_optimizer(call.func.value, known) or bool(SCALER.search(dotted(call.func.value))) and any(is_optimizer(given, known) for given in call.args)


def is_backward(call):
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def optimizers(tree):
    """Names to which something of an optimizer's name is assigned."""
    return {dotted(target) for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and OPTIMIZER.search(dotted(node.value.func))
            for target in node.targets if dotted(target) and not NO_OPTIMIZER.search(dotted(target))}


def own_statements(source):
    """Statements that hold no others, and tests of those that do: (statement, the call nodes in it)."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            yield node, calls_in(node)


def enclosing(source, node, kinds):
    """The innermost node of these kinds around it, within the same function."""
    node = source.parents.get(node)
    while node is not None and not isinstance(node, kinds):
        if isinstance(node, FUNCTIONS + (ast.ClassDef,)):
            return None
        node = source.parents.get(node)
    return node


def function_of(source, node):
    while node is not None and not isinstance(node, FUNCTIONS):
        node = source.parents.get(node)
    return node


def loop_of(source, node):
    """The innermost loop around a statement; one over optimizers is no training loop."""
    loop = enclosing(source, node, (ast.For, ast.While))
    while isinstance(loop, ast.For) and OPTIMIZER.search(ast.dump(loop.target)):
        loop = enclosing(source, loop, (ast.For, ast.While))
    return loop


def is_jax_step(function):
    words = {dotted(call.func).split(".")[-1] for call in calls_in(function)}
    return bool(words & {"value_and_grad", "grad", "apply_gradients", "apply_updates"})


def step_ends(sources):
    """[(source, statement that updates, its loop or None)], one for each loop: optimizers, else gradients, else jitted updates."""
    def hits(wanted):
        return [(source, statement, loop_of(source, statement)) for source in sources for statement, calls in own_statements(source)
                if any(wanted(source, call) for call in calls)]
    known = {name for source in sources for name in optimizers(source.tree)}
    found = hits(lambda _, call: is_update(call, known)) or hits(lambda _, call: is_backward(call))
    if not found:
        jitted = {node.name for source in sources for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS) and is_jax_step(node)}
        found = [hit for hit in hits(lambda _, call: dotted(call.func) in jitted) if hit[2] is not None]
    last = {}
    for source, statement, loop in found:
        last[(source.path, id(loop) if loop is not None else id(function_of(source, statement)))] = (source, statement, loop)
    return list(last.values())


def climbed(source, statement, loop):
    """The statement behind which a step is over whichever way it went: an `if` between it and the loop counts as a whole, unless it is
    about every n-th turn."""
    chain, node = [], statement
    while node is not None and node is not loop and not isinstance(node, FUNCTIONS + (ast.Module,)):
        chain.append(node)
        node = source.parents.get(node)
    for node in reversed([node for node in chain if isinstance(node, ast.stmt)]):
        if isinstance(node, ast.If) and not any(isinstance(each, ast.Mod) or "accum" in (dotted(each) if isinstance(each, (ast.Name, ast.Attribute)) else "")
                                                for each in ast.walk(node.test)):
            return node
        if not isinstance(node, (ast.If, ast.With, ast.Try, ast.AsyncWith)):
            return node
    return statement


def counters(sources, main):
    """{path: [Insert]}: the lines that count steps."""
    edits = {}
    for source, statement, loop in step_ends(sources):
        at = climbed(source, statement, loop)
        if not is_alone(source, at):
            continue
        edits.setdefault(source.path, []).append(Insert(at.end_lineno, (source.indent(at.lineno) + COUNT,)))
    return edits or {main.path: [Insert(main.after_imports(), (HOOK,))]}


def is_alone(source, statement):
    """Whether lines can be put behind it: nothing else stands on its last line, nor before it on its first."""
    rest = source.lines[statement.end_lineno - 1][source.end(statement):].strip()
    return source.lines[statement.lineno - 1][:source.begin(statement)].strip() == "" and (not rest or rest.startswith("#"))


def training_loops(sources):
    """[(source, loop)]. Where the update stands in a function without a loop, the loops that call it."""
    found = []
    for source, statement, loop in step_ends(sources):
        if loop is not None:
            found.append((source, loop))
            continue
        function = function_of(source, statement)
        for other in sources if function is not None else ():
            for caller, calls in own_statements(other):
                outer = loop_of(other, caller)
                if outer is not None and any(dotted(call.func).split(".")[-1] == function.name for call in calls):
                    found.append((other, outer))
    return list({id(loop): (source, loop) for source, loop in found}.values())


def assigned(node):
    """Names that a statement, or what stands in it, assigns."""
    return {each.id for each in [node, *same_scope(node)] if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def loss_names(sources):
    """What backward() is called on."""
    names = set()
    for source in sources:
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and is_backward(node)):
            receiver = call.func.value
            given = receiver.args if isinstance(receiver, ast.Call) else [receiver, *call.args]
            names |= {each.id for each in given if isinstance(each, ast.Name)}
    return names


def model_name(source, scope):
    """Of the model within a scope: what has parameters, or is set to train."""
    for wanted in ("parameters", "zero_grad", "train"):
        for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr == wanted and isinstance(call.func.value, ast.Name) \
                    and not OPTIMIZER.search(call.func.value.id):
                return call.func.value.id
    return None


def places_in(source, body, what, tensors, model, calls=1.0, before_first=False):
    """Behind each statement of a block that is always reached. A tensor's name is known once it is assigned."""
    first, have, found = body[0], set(), []
    if not is_alone(source, first) and len(body) == 1 or first.lineno == getattr(source.parents.get(first), "lineno", 0):
        return []
    if before_first and not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        start = min([first.lineno] + [each.lineno for each in getattr(first, "decorator_list", [])])
        found.append(Place(source, start - 1, source.indent(first.lineno), what, tensors[0] if tensors and what == "forward" else None, model, calls))
    for statement in body:
        if isinstance(statement, LEAVES):
            break
        have |= assigned(statement)
        tensor = next((name for name in tensors if name in have or what == "forward"), None)
        if is_alone(source, statement):
            found.append(Place(source, statement.end_lineno, source.indent(first.lineno), what, tensor, model, calls))
    return found


def loop_places(sources):
    """In training loops, and in the methods that a library's loop calls for each batch."""
    losses, found = loss_names(sources), []
    for source, loop in training_loops(sources):
        scope = function_of(source, loop) or source.tree
        names = [name for name in sorted(losses) if name in assigned(loop)]
        if not names:  # jitted: what the update returns last
            names = [name for statement in loop.body if isinstance(statement, ast.Assign) for target in statement.targets
                     if isinstance(target, ast.Tuple) and isinstance(target.elts[-1], ast.Name) for name in [target.elts[-1].id]][-1:]
        found += places_in(source, loop.body, "loop", names, model_name(source, scope), before_first=True)
    for source in sources:
        for function in (node for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS) and node.name == "training_step"):
            returned = [node.value.id for node in same_scope(function) if isinstance(node, ast.Return) and isinstance(node.value, ast.Name)]
            found += places_in(source, function.body, "method", returned, function.args.args[0].arg if function.args.args else None, before_first=True)
    return found


def methods(sources, name):
    """(source, method) of that name in classes."""
    return [(source, method) for source in sources for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)
            for method in node.body if isinstance(method, FUNCTIONS) and method.name == name]


def forward_places(sources, seen):
    """In forward methods of models that steps were seen to call; `seen` is {(path, line): calls in a step}, None: any."""
    found = []
    for source, method in methods(sources, "forward"):
        calls = 1.0 if seen is None else seen.get((source.path, method.lineno), 0.0)
        given = [argument.arg for argument in method.args.args[1:2]]
        if calls and given:
            found += places_in(source, method.body, "forward", given, None, calls, before_first=True)
    return found


def batch_places(sources, seen):
    """In functions of the program, outside of classes, that a training loop calls for its next batch."""
    names = {dotted(call.func) for _, loop in training_loops(sources) for statement in loop.body for call in calls_in(statement)}
    found = []
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, FUNCTIONS) and node.name in names and re.search(r"batch|sample|load|data", node.name, re.I):
                calls = 1.0 if seen is None else seen.get((source.path, node.lineno), 0.0)
                found += places_in(source, node.body, "batch", [], None, calls, before_first=True) if calls else []
    return found


def evaluation_loops(sources):
    """Loops within functions that neither update nor differentiate, under no_grad or inference_mode."""
    found = []
    for source in sources:
        for function in (node for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS)):
            text = source.text_of(function) or ""
            around = "\n".join(source.lines[function.lineno - 1 - len(function.decorator_list):function.lineno])
            if re.search(r"no_grad|inference_mode", text + around) and ".backward(" not in text:
                found += [(source, node) for node in ast.walk(function) if isinstance(node, (ast.For, ast.While))]
    return found
