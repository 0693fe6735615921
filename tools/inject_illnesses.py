"""What can be made wrong with a training program, where, and how badly. Each maker returns the ways it sees in a program: functions that draw one.

Nothing here knows thresholds, rules or tables of the doctor; `kinds` are the words that its documents use for such an illness.
"""
import ast
import math
import time
import typing

import inject_sites as sites
from inject_source import Insert

LEAST_GAIN, MOST_GAIN = 0.15, 0.9     # of the untouched step: what is added. Some of it hides behind the GPU; what is lost is measured. Processes of one
                                      # program differ by up to a fifth: what adds less cannot be told from that in two turns
LAUNCH_US, FLUSH_US = 5.0, 2.0        # guesses, only to choose strengths
PAGEABLE_MB_PER_MS, WRITTEN_MB_PER_MS = 8.0, 1.0
GPU_BYTES_PER_MS, CPU_BYTES_PER_MS = 3e9, 3e6
TF32_WORDS = ("Conv", "LSTM", "GRU", "RNN", "tf32", "float32_matmul_precision")
ROWS = 4                              # of a host buffer, one of which goes up in a step: not the same as in the step before
MOST_BUSY = 0.85                      # of a GPU to which small launches are added: else they take its time, not the host's


class Illness(typing.NamedTuple):
    name: str
    kinds: typing.Tuple[str, ...]
    edits: typing.Dict[str, list]        # by path
    also: typing.Tuple[typing.Tuple[str, int], ...] = ()  # (path, original line) that are the right place, too
    strength: str = ""


class View(typing.NamedTuple):
    """What a program is, and what is known of it when illnesses are drawn. `seen` as in inject_sites.forward_places."""
    sources: typing.Any
    main: typing.Any
    step_ms: float
    seen: typing.Optional[dict] = None
    batch: int = 64
    workers: int = 0
    has_gpu: bool = True
    is_jax: bool = False
    busy: typing.Optional[float] = None

    def milliseconds(self, rng):
        return self.step_ms * math.exp(rng.uniform(math.log(LEAST_GAIN), math.log(MOST_GAIN)))


# Python work: (statement with {name} and {count}, what it is timed by)
WORK = ("{name} = sum(j * j % 7 for j in range({count}))",
        "{name} = sorted(str(j * 7919 % 104729) for j in range({count}))",
        "{name} = ' '.join(repr(j * 0.37) for j in range({count}))",
        "{name} = {{j: [j, -j] for j in range({count})}}")
TRIED = 4000
speeds = {}


def count_for(work, milliseconds):
    """How many turns of such work take that long on this machine."""
    if work not in speeds:
        code, taken = compile(work.format(name="_tried", count=TRIED), "work", "exec"), []
        for _ in range(3):
            begin = time.perf_counter()
            exec(code, {})
            taken.append(time.perf_counter() - begin)
        speeds[work] = max(1e-9, 1e3 * min(taken) / TRIED)
    return max(1, round(milliseconds / speeds[work]))


def inserted(place, lines, marked=None):
    lines = tuple(place.indent + line for line in lines)
    return {place.source.path: [Insert(place.after, lines, tuple(range(len(lines))) if marked is None else marked)]}


def with_top(edits, source, lines, marked=()):
    """The same edits and definitions behind the imports of a file."""
    return {**edits, source.path: [Insert(source.after_imports(), tuple(lines), tuple(marked)), *edits.get(source.path, [])]}


def loop_places(view, tensor=False, model=False):
    return [place for place in sites.loop_places(view.sources) if (place.tensor or not tensor) and (place.model or not model)]


def forward_places(view):
    return [] if view.is_jax else [place for place in sites.forward_places(view.sources, view.seen) if place.tensor]


def loader_headers(view):
    """Lines of the training loops: where a program waits for its next batch."""
    return tuple((source.path, loop.lineno) for source, loop in sites.training_loops(view.sources))


def host_read(view):
    def plain(rng, place):
        tensor = place.tensor
        ways = [(f"_seen = float({tensor})",), (f"if {tensor} != {tensor}:", "    print('not a number')")]
        if not view.is_jax:
            ways += [(f"_seen = {tensor}.item()",), (f"_seen = {tensor}.detach().cpu().numpy()",)]
        return Illness("host-read", ("host-sync",), inserted(place, rng.choice(ways)), strength="1 read")

    def of_gradients(rng, place):
        count = round(math.exp(rng.uniform(0, math.log(64))))
        line = f"_norms = [p.grad.norm().item() for p in list({place.model}.parameters())[:{count}] if p.grad is not None]"
        return Illness("host-read", ("host-sync",), inserted(place, (line,)), strength=f"{count} reads")

    def within(rng, place):
        ways = (f"_mean = {place.tensor}.float().mean().item()", f"_most = float({place.tensor}.max())", f"_any = bool(({place.tensor} != {place.tensor}).any())")
        return Illness("host-read", ("host-sync",), inserted(place, (rng.choice(ways),)), strength=f"{place.calls:g} reads")

    # Before the update gradients may be None, behind it they may be gone: the comprehension then reads nothing, which is measured.
    return [lambda rng, place=place, way=way: way(rng, place)
            for way, places in ((plain, loop_places(view, tensor=True)), (within, forward_places(view)),
                                (of_gradients, [] if view.is_jax else loop_places(view, tensor=True, model=True))) for place in places]


def blocking_copy(view):
    def upload(rng, place):
        count = max(1, round(1e3 * view.milliseconds(rng) / 30))
        lines = (f"for _row in range({count}):", f"    _copy = _torch.rand({rng.choice((16, 256, 2048))}).to({place.tensor}.device)")
        return Illness("blocking-copy", ("host-sync", "pageable-copy"), with_top(inserted(place, lines), place.source, ("import torch as _torch",)),
                       strength=f"{count} uploads")

    def download(rng, place):
        count = round(math.exp(rng.uniform(0, math.log(64))))
        line = f"_kept = [p.detach().cpu() for p in list({place.model}.parameters())[:{count}]]"
        return Illness("blocking-copy", ("host-sync", "pageable-copy"), inserted(place, (line,)), strength=f"{count} downloads")

    if view.is_jax:
        return []
    return [lambda rng, place=place: upload(rng, place) for place in loop_places(view, tensor=True)] \
        + [lambda rng, place=place: download(rng, place) for place in loop_places(view, model=True)]


def pageable_copy(view):
    def added(rng, place):
        count = max(20000, round(view.milliseconds(rng) * PAGEABLE_MB_PER_MS * 1e6 / 4))
        top = ("import time as _time", "import torch as _torch", f"_rows = _torch.rand({ROWS}, {count})")
        line = f"_up = _rows[_time.monotonic_ns() // 1000 % {ROWS}].to({place.tensor}.device)"
        return Illness("pageable-copy", ("pageable-copy",), with_top(inserted(place, (line,)), place.source, top), strength=f"{count * 4e-6:.1f} MB")

    def unpinned(source, node, text):
        near = sites.function_of(source, node)
        bodies = [near] if near is not None and near.name != "main" else []
        bodies += [loop for _, loop in sites.training_loops([source])]
        lines = {call.lineno for body in bodies for call in ast.walk(body) if isinstance(call, ast.Call)
                 and isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda")}
        return Illness("pageable-copy", ("pageable-copy",), {source.path: [source.replace(node, text)]}, tuple((source.path, line) for line in sorted(lines)), "not pinned")

    found = [] if view.is_jax else [lambda rng, place=place: added(rng, place) for place in loop_places(view, tensor=True)]
    for source in view.sources:
        for node in ast.walk(source.tree):
            values = [keyword.value for keyword in node.keywords if keyword.arg == "pin_memory"] if isinstance(node, ast.Call) else []
            if isinstance(node, ast.Dict):
                values = [value for key, value in zip(node.keys, node.values) if isinstance(key, ast.Constant) and key.value == "pin_memory"]
            found += [lambda _, source=source, value=value: unpinned(source, value, "False") for value in values
                      if isinstance(value, ast.Constant) and value.value is True]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pin_memory" and node.lineno == node.end_lineno:
                found.append(lambda _, source=source, node=node: unpinned(source, node, source.text_of(node.func.value)))
    return found


def python_work(view):
    def drawn(rng, place):
        work = rng.choice(WORK)
        count = count_for(work, view.milliseconds(rng))
        return Illness("python-work", ("python-work",), inserted(place, (work.format(name="_work", count=count),)), strength=f"{count} turns")
    return [lambda rng, place=place: drawn(rng, place) for place in loop_places(view)]


def slow_loading(view):
    """Work per sample in data sets, per batch in collate_fn or in a function that makes batches, per image in a transform."""
    shared = max(1, view.workers)
    waits = ("loader-wait",) if view.workers else ("loader-wait", "python-work")

    def of(rng, per_step):
        work = rng.choice(WORK)
        count = count_for(work, shared * view.milliseconds(rng) / max(1e-9, per_step))
        return work.format(name="_work", count=count), f"{count} turns, {per_step:g} times a step"

    def sampled(rng, place, per_step):
        line, strength = of(rng, per_step)
        return Illness("slow-loading", waits, inserted(place, (line,)), loader_headers(view), strength)

    def collated(rng, source, call):
        line, strength = of(rng, 1)
        top = ("import torch.utils.data as _data", "def _collate(rows):", "    " + line, "    return _data.default_collate(rows)")
        edits = with_top({source.path: [source.before_closing(call, "collate_fn=_collate")]}, source, top, (2,))
        return Illness("slow-loading", waits, edits, loader_headers(view), strength)

    def transformed(rng, source, node):
        line, strength = of(rng, view.batch)
        top = ("def _transform(image):", "    " + line, "    return image")
        owner = source.text_of(node.func.value)
        edit = source.replace(node, f"{owner}.Compose([{source.text_of(node)}, _transform])")
        return Illness("slow-loading", waits, with_top({source.path: [edit]}, source, top, (1,)), loader_headers(view), strength)

    found = [lambda rng, place=place: sampled(rng, place, view.batch) for source, method in sites.methods(view.sources, "__getitem__")
             for place in sites.places_in(source, method.body, "sample", [], None, before_first=True)]
    found += [lambda rng, place=place: sampled(rng, place, place.calls) for place in sites.batch_places(view.sources, view.seen)]
    for source in view.sources:
        for node in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
            name, words = sites.dotted(node.func), {keyword.arg for keyword in node.keywords}
            around = source.lines[node.lineno - 1]
            if name.endswith("DataLoader") and "collate_fn" not in words and not is_held_out(around) and not view.is_jax:
                found.append(lambda rng, source=source, node=node: collated(rng, source, node))
            if name.endswith(".ToTensor") and node.lineno == node.end_lineno and not is_held_out(around):
                found.append(lambda rng, source=source, node=node: transformed(rng, source, node))
    return found


def is_held_out(text):
    return any(word in text.lower() for word in ("val", "test", "eval"))


def small_launches(view):
    def drawn(rng, place):
        count = max(1, round(1e3 * view.milliseconds(rng) / (2 * LAUNCH_US)))
        begin = f"_small = {place.tensor}" + ("" if view.is_jax else ".detach()")
        lines = (begin, f"for _turn in range({count}):", "    _small = _small * 0.999 + 0.001")
        return Illness("small-launches", ("launch-bound",), inserted(place, lines, (1, 2)), strength=f"{2 * count} launches")

    def one_by_one(source, call):
        ends = {(each.path, statement.lineno) for each, statement, _ in sites.step_ends(view.sources)}
        return Illness("small-launches", ("launch-bound",), {source.path: [source.before_closing(call, "foreach=False")]}, tuple(sorted(ends)), "optimizer tensor by tensor")

    if view.busy is not None and view.busy > MOST_BUSY:
        return []
    found = [lambda rng, place=place: drawn(rng, place) for place in loop_places(view, tensor=True)]
    for source in view.sources:
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
            words = {keyword.arg for keyword in call.keywords}
            if "optim." in sites.dotted(call.func) and sites.dotted(call.func).split(".")[-1][:1].isupper() and "lr_scheduler" not in sites.dotted(call.func) \
                    and not words & {"foreach", "fused", None}:
                found.append(lambda _, source=source, call=call: one_by_one(source, call))
    return found


def tiny_evaluation(view):
    """A batch size of evaluations divided."""
    loops = [(source.path, line) for source, loop in sites.evaluation_loops(view.sources) for line in range(loop.lineno, loop.end_lineno + 1)]

    def divided(rng, source, node):
        by = 2 ** rng.randint(2, 7)
        edit = source.replace(node, f"max(1, ({source.text_of(node)}) // {by})")
        return Illness("tiny-evaluation", ("slow-evaluation",), {source.path: [edit]}, tuple(loops), f"batches divided by {by}")

    found = []
    for source in view.sources if loops else ():
        for node in ast.walk(source.tree):
            values = []
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if is_held_out(name) and isinstance(node.value, ast.Dict):
                    values = [value for key, value in zip(node.value.keys, node.value.values) if isinstance(key, ast.Constant) and key.value == "batch_size"]
                elif is_held_out(name) and isinstance(node.value, ast.Call):
                    values = [keyword.value for keyword in node.value.keywords if keyword.arg == "batch_size"]
                elif is_held_out(name) and "batch_size" in name.lower() and isinstance(node.value, ast.Constant):
                    values = [node.value]
            found += [lambda rng, source=source, value=value: divided(rng, source, value) for value in values if value.lineno == value.end_lineno]
    return found


def file_output(view):
    def drawn(rng, place):
        wanted = view.milliseconds(rng)
        size, rows = max(1000, round(wanted * WRITTEN_MB_PER_MS * 1e6)), max(1, round(1e3 * wanted / FLUSH_US))
        ways = [(f"{size * 1e-6:.2f} MB", ('with open("_state.bin", "wb") as _out:', f"    _out.write(bytes({size}))")),
                (f"{rows} flushed rows", ('with open("_rows.txt", "w") as _out:', f"    for _row in range({rows}):", "        print(_row, file=_out, flush=True)"))]
        strength, lines = rng.choice(ways)
        return Illness("file-output", ("file-output",), inserted(place, lines), strength=strength)
    return [lambda rng, place=place: drawn(rng, place) for place in loop_places(view)]


def repeated_work(view):
    def computed(rng, place):
        size = max(32, round(math.sqrt(view.milliseconds(rng) * (GPU_BYTES_PER_MS if view.has_gpu else CPU_BYTES_PER_MS) / 40)))
        lines = (f"_at = _torch.arange({size}, device={place.tensor}.device, dtype=_torch.float32)",
                 f"_decay = _torch.exp(-(_at[:, None] - _at[None, :]).abs() / {size})")
        return Illness("repeated-work", ("repeated-work",), with_top(inserted(place, lines), place.source, ("import torch as _torch",)), strength=f"{size} x {size}")

    def uploaded(rng, place):
        count = max(20000, round(view.milliseconds(rng) * PAGEABLE_MB_PER_MS * 1e6 / 4))
        top = ("import torch as _torch", f"_table = _torch.rand({count})")
        return Illness("repeated-work", ("repeated-work", "pageable-copy"), with_top(inserted(place, (f"_again = _table.to({place.tensor}.device)",)), place.source, top),
                       strength=f"{count * 4e-6:.1f} MB")

    if view.is_jax:
        return []
    return [lambda rng, place=place, way=way: way(rng, place) for way in (computed, uploaded) for place in loop_places(view, tensor=True)]


def wrong_type(view):
    """Autocast off, TF32 off, bf16 off in a library's arguments. The products may then be anywhere in the model."""
    where = [(source.path, line) for source, method in sites.methods(view.sources, "forward") for line in range(method.lineno, method.end_lineno + 1)]
    where += [(source.path, line) for source, loop in sites.training_loops(view.sources) for line in range(loop.lineno, loop.end_lineno + 1)]
    where = tuple(where)

    def replaced(source, edit, strength):
        return Illness("wrong-type", ("no-tensor-cores",), {source.path: [edit]}, where, strength)

    found = []
    for source in view.sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and sites.dotted(node.func).endswith("autocast") and "enabled" not in {keyword.arg for keyword in node.keywords}:
                found.append(lambda _, source=source, node=node: replaced(source, source.before_closing(node, "enabled=False"), "autocast off"))
            if isinstance(node, ast.Call):
                found += [lambda _, source=source, node=keyword.value, call=node: Illness(
                    "wrong-type", ("no-tensor-cores",), {source.path: [source.replace(node, "False")]}, (*where, (source.path, call.lineno)), "bf16 off")
                    for keyword in node.keywords if keyword.arg in ("bf16", "fp16") and isinstance(keyword.value, ast.Constant) and keyword.value.value is True]
    # PyTorch lets cuDNN have TF32 by itself, products only where a program says so.
    if view.main.imports("torch") and not view.is_jax and any(word in source.text for source in view.sources for word in TF32_WORDS):
        line = view.main.after_imports()
        lines = ("import torch as _torch", "_torch.backends.cuda.matmul.allow_tf32 = False", "_torch.backends.cudnn.allow_tf32 = False")
        found.append(lambda _: replaced(view.main, Insert(line, lines, (1, 2)), "TF32 off"))
    return found


MAKERS = {"host-read": host_read, "blocking-copy": blocking_copy, "pageable-copy": pageable_copy, "python-work": python_work, "slow-loading": slow_loading,
          "small-launches": small_launches, "tiny-evaluation": tiny_evaluation, "file-output": file_output, "repeated-work": repeated_work, "wrong-type": wrong_type}


def possible(view):
    """{name: ways}, as far as the program has a place for them."""
    return {name: ways for name, ways in ((name, maker(view)) for name, maker in MAKERS.items()) if ways}


def drawn(view, rng):
    """One illness in three of five draws, else two of different names."""
    ways = possible(view)
    names = rng.sample(sorted(ways), min(1 if rng.random() < 0.6 else 2, len(ways)))
    return [rng.choice(ways[name])(rng) for name in names]
