#!/usr/bin/env python3
"""Writes a synthetic trace as PyTorch's profiler would: for tests, and in any size to measure the reader with.

    make_kineto_trace.py OUT.json[.gz] [--steps N] [--kernels N] [--stack] [--operators N] [--size 1G] [--seed N]

A step of the made-up program: the loader, an upload from pageable memory, forward launches under nested functions and operators,
backward launches on a thread of autograd's, an optimizer, and a read of the loss that waits for the GPU. --size goes on with steps
until so many bytes (before packing) are written; memory stays small.
"""
import argparse
import gzip
import json
import random

PID, MAIN, AUTOGRAD = 4242, 4242, 4301
KERNELS = ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, "
           "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
           "ampere_sgemm_128x64_tn", "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
           "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas")


class Trace:
    """Streams events; times are nanoseconds."""

    def __init__(self, out, base):
        self.out, self.written, self.first, self.base = out, 0, True, base

    def text(self, text):
        self.out.write(text)
        self.written += len(text)

    def event(self, fields, ts, dur=None, args=None):
        parts = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in fields.items())
        text = "" if self.first else ","
        self.first = False
        text += f"\n  {{\n    {parts},\n    \"ts\": {ts // 1000}.{ts % 1000:03}"
        if dur is not None:
            text += f", \"dur\": {dur // 1000}.{dur % 1000:03}"
        if args is not None:
            inner = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in args.items())
            text += f",\n    \"args\": {{\n      {inner}\n    }}"
        self.text(text + "\n  }")

    def span(self, category, name, thread, begin, end, args=None, pid=PID):
        self.event({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": thread}, begin, end - begin, args)

    def flow(self, phase, number, pid, tid, ts):
        fields = {"ph": phase, "id": number, "pid": pid, "tid": tid, "cat": "ac2g", "name": "ac2g"}
        if phase == "f":
            fields["bp"] = "e"
        self.event(fields, ts)


class Program:
    """A clock of the host and one of the device, and what a step does to them."""

    def __init__(self, trace, options):
        self.trace, self.options = trace, options
        self.random = random.Random(options.seed)
        self.host = self.device = 1_000_000
        self.correlation, self.step_number, self.reserved = 0, 0, 1 << 30

    def call(self, name, took, thread=MAIN, work=None):
        """A call of the runtime, and the work it starts: (category, name, duration, args)."""
        self.correlation += 1
        begin, self.host = self.host, self.host + took
        self.trace.span("cuda_runtime", name, thread, begin, self.host, {"External id": self.correlation, "cbid": 211, "correlation": self.correlation})
        if work is None:
            return
        category, title, duration, args = work
        start = max(self.device, self.host) + 800
        self.device = start + duration
        self.trace.flow("s", self.correlation, PID, thread, begin)
        self.trace.span(category, title, 7, start, self.device,
                        {"External id": self.correlation, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": self.correlation, **args}, pid=0)
        self.trace.flow("f", self.correlation, 0, 7, start)

    def launch(self, index, thread=MAIN):
        begin = self.host
        self.host += self.random.randrange(1500, 2500)
        args = {"registers per thread": 32, "shared memory": 0, "blocks per SM": 1.5, "warps per SM": 12.0, "grid": [index % 7 + 1, 1, 1],
                "block": [128, 1, 1], "est. achieved occupancy %": 25, "priority": 0}
        self.call("cudaLaunchKernel", self.random.randrange(2000, 3000), thread,
                  ("kernel", KERNELS[index % len(KERNELS)], self.random.randrange(3000, 9000), args))
        self.host += 500
        for depth in range(self.options.operators):
            name = ("aten::linear", "aten::addmm", "aten::copy_", "aten::empty")[depth % 4]
            self.trace.span("cpu_op", name, thread, begin + depth, self.host - depth,
                            {"External id": self.correlation, "Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": ["float"],
                             "Input Strides": [[1]], "Input Dims": [[64, 64]], "Ev Idx": self.correlation})

    def upload(self):
        size = 1 << 20
        self.call("cudaMemcpyAsync", 60_000, MAIN,
                  ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 45_000, {"bytes": size, "memory bandwidth (GB/s)": size / 45_000}))
        self.call("cudaStreamSynchronize", max(self.device - self.host, 0) + 3000)

    def read_loss(self):
        self.call("cudaMemcpyAsync", 8000, MAIN, ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 1500, {"bytes": 4, "memory bandwidth (GB/s)": 0.002}))
        self.call("cudaStreamSynchronize", max(self.device - self.host, 0) + 3000)

    def function(self, name, begin, end, depth):
        if self.options.stack:
            args = {"Python parent id": depth, "Python id": depth + 1, "Ev Idx": depth}
            self.trace.span("python_function", name, MAIN, begin, end, args)

    def step(self):
        begin = self.host
        loader = self.host
        self.host += 150_000
        self.trace.span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", MAIN, loader, self.host, {"External id": 1})
        self.function("torch/utils/data/dataloader.py(626): __next__", loader, self.host, 2)
        upload = self.host
        self.upload()
        self.function("train.py(20): load_batch", upload, self.host, 2)
        forward = self.host
        for index in range(self.options.kernels):
            self.launch(index)
        self.function("torch/nn/modules/module.py(1532): _wrapped_call_impl", forward, self.host, 3)
        self.function("nn.Module: Net_0", forward, self.host, 4)
        backward = self.host
        self.host += 5000
        for index in range(self.options.kernels):
            self.launch(index + 1, AUTOGRAD)
        self.host += 5000
        self.function("torch/_tensor.py(570): backward", backward, self.host, 3)
        self.function(f"<built-in method run_backward of torch._C._EngineBase object at 0x7f{self.step_number:010x}>", backward + 1000, self.host - 1000, 4)
        optimizer = self.host
        self.launch(3)
        self.trace.span("user_annotation", "Optimizer.step#SGD.step", MAIN, optimizer, self.host, {"External id": 2})
        read = self.host
        self.read_loss()
        self.function(f"<built-in method item of Tensor object at 0x7e{self.step_number:010x}>", read, self.host, 3)
        self.memory(begin)
        self.function("train.py(31): train_step", upload, self.host + 2000, 1)
        self.trace.span("user_annotation", f"ProfilerStep#{self.step_number}", MAIN, begin, self.host + 3000, {"External id": 3})
        self.host += 4000
        self.step_number += 1

    def memory(self, begin):
        for size in (4096, -4096):
            fields = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PID, "tid": MAIN}
            self.trace.event(fields, begin + 2000, args={"Total Reserved": self.reserved, "Total Allocated": 1 << 29, "Bytes": size,
                                                         "Addr": 139641992380416, "Device Id": 0, "Device Type": 1, "Ev Idx": 9})


def row_names(trace):
    for pid, name, label in ((PID, "python3", "CPU"), (0, "python3", "GPU 0")):
        for key, value in (("name", name), ("labels", label), ("sort_index", pid)):
            metadata = {"name": "process_name", "labels": "process_labels", "sort_index": "process_sort_index"}[key]
            trace.event({"name": metadata, "ph": "M", "pid": pid, "tid": 0}, 0, args={key: value})
    trace.event({"name": "thread_name", "ph": "M", "pid": 0, "tid": 7}, 0, args={"name": "stream 7 "})


def write(out, options):
    trace = Trace(out, 0)
    trace.text('\n  {\n    "schemaVersion": 1,\n    "deviceProperties": [\n    {\n      "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150121545728,\n'
               '      "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132\n    }\n    ],\n'
               f'    "with_stack": {int(options.stack)},\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1775078550000000000,\n  "traceEvents": [')
    row_names(trace)
    program = Program(trace, options)
    start = program.host
    while program.step_number < options.steps or trace.written < options.size:
        program.step()
    trace.span("overhead", "Buffer Flush", 0, program.host, program.host + 70_000)
    if options.stack:
        program.function("train.py(1): <module>", start, program.host, 0)
    fields = {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": ""}
    trace.event(fields, program.host)
    trace.text('\n  ],\n  "traceName": "trace.json"\n}\n')


def size_of(text):
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 0)
    return int(text[:-1]) * factor if factor else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--kernels", type=int, default=4, help="launches of a forward pass; backward has as many")
    parser.add_argument("--operators", type=int, default=2, help="operators around a launch")
    parser.add_argument("--stack", action="store_true", help="as with_stack=True")
    parser.add_argument("--size", type=size_of, default=0, help="go on until the trace has so many bytes: 64M, 1G")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    opened = gzip.open(options.out, "wt", compresslevel=3) if options.out.endswith(".gz") else open(options.out, "w", encoding="utf-8")
    with opened as out:
        write(out, options)


if __name__ == "__main__":
    main()
