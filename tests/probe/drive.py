"""Drives the stand-in for CUDA as a training script would: `drive.py LIBRARY`, then commands on the standard input.

Each command is answered by one line. `step N` makes N steps of two launches, an upload, a set, an allocation, a graph launch and a
synchronisation; the lines that tests look for are marked.
"""
import ctypes
import os
import struct
import sys
import threading
import time

cuda = ctypes.CDLL(sys.argv[1])
profiler = ctypes.CDLL(os.environ["MOCK_PROFILER"]) if "MOCK_PROFILER" in os.environ else None
framework = ctypes.CDLL(os.environ["MOCK_FRAMEWORK"]) if "MOCK_FRAMEWORK" in os.environ else None
size_t = ctypes.c_size_t
weights = ctypes.c_void_p()
scale = ctypes.c_float(0.5)
batch = ctypes.create_string_buffer(b"first", 100_001)


def launch(function=0):
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(weights), ctypes.addressof(scale))
    return cuda.mock_launch(function, 12, 256, arguments, ctypes.c_uint64(0))  # launch


def forward():
    launch()  # from forward


def framework_step(launches):
    """What a framework does by way of the runtime that it imports, and a launch of a library that has a runtime inside."""
    failed = framework.mock_framework_step(weights, launches)
    launch()
    return failed


def read_loss():
    return cuda.cudaStreamSynchronize(  # synchronise
        None,
    )


def step(number):
    forward()
    cuda.cudaMemcpyAsync(weights, batch, size_t(len(batch)), 1, None)  # upload
    cuda.cudaMemsetAsync(weights, 0, size_t(256), None)
    cuda.cudaEventRecord(ctypes.c_void_p(0xe0), None)
    scratch = ctypes.c_void_p()
    cuda.cudaMalloc(ctypes.byref(scratch), size_t(1000 + number))  # allocate
    cuda.cudaFree(scratch)
    cuda.cudaGraphLaunch(ctypes.c_void_p(1), None)
    [launch(function) for function in (0,)]  # from a comprehension
    read_loss()


def fork_and_launch():
    child = os.fork()
    if child == 0:
        for number in range(50):
            step(number)
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def two_allocators(rounds):
    """One thread drops the interpreter's lock in the framework's allocator, the other keeps it while it waits for the allocator."""
    keeping = ctypes.PyDLL(sys.argv[1])

    def allocate(library):
        for _ in range(rounds):
            held = ctypes.c_void_p()
            library.mock_framework_allocate(ctypes.byref(held), size_t(512))
            library.mock_framework_allocate(ctypes.byref(held), size_t(512))

    threads = [threading.Thread(target=allocate, args=(library,)) for library in (cuda, keeping, cuda, keeping)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def stress(seconds):
    """Two threads that allocate and free until the time is up, one with the interpreter's lock and one without; says every 20 ms
    how many rounds each has made."""
    rounds, running = [0, 0], [True]

    def churn(which, library):
        while running[0]:
            held = ctypes.c_void_p()
            library.mock_framework_allocate(ctypes.byref(held), size_t(512 + rounds[which] % 7))  # churn takes
            library.mock_framework_allocate(ctypes.byref(held), size_t(0))  # churn gives
            rounds[which] += 1

    threads = [threading.Thread(target=churn, args=each) for each in ((0, cuda), (1, ctypes.PyDLL(sys.argv[1])))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.02)
        print("churned", *rounds, flush=True)
    running[0] = False
    for thread in threads:
        thread.join()
    return f"finished {rounds[0]} {rounds[1]}"


def cupti():
    return ctypes.CDLL(os.environ["MILLRACE_CUPTI"])


copying, taken = [], []


def copy_aside():
    """A thread that is inside of a copy for as long as that takes."""
    copying.append(threading.Thread(target=lambda: cuda.cudaMemcpyAsync(weights, batch, size_t(len(batch)), 1, None)))
    copying[-1].start()


def crowd(count):
    """Threads that have launched once and stay."""
    launched = threading.Barrier(count + 1)

    def work():
        launch()
        launched.wait()
        threading.Event().wait()

    for _ in range(count):
        threading.Thread(target=work, daemon=True).start()
    launched.wait()


def many_threads(count):
    barrier = threading.Barrier(count)

    def work():
        launch()
        barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def launch_forever():
    while True:
        launch()


def copy_forever():
    while True:
        cuda.cudaMemcpyAsync(weights, batch, size_t(len(batch)), 1, None)
        time.sleep(0.002)  # so that copies can go off


def tracked_forever():
    while True:
        framework.mock_framework_step(weights, 4)


def spin_forever(uses_cuda, begun):
    """Runs outside of CUDA, after one launch or none; never asleep while others are inside of a library."""
    if uses_cuda:
        launch()
    begun.set()
    while True:
        pass


def take_now_and_then():
    """Some of it while the main thread sleeps."""
    for _ in range(20):
        time.sleep(0.025)
        framework.mock_framework_take(size_t(10))


def framework_forever():
    while True:
        framework_step(4)


churning = []


def churn_framework(rounds):
    """Takes and gives memory until rounds[1] says no."""
    framework.mock_framework_take.restype = ctypes.c_void_p
    while rounds[1]:
        framework.mock_framework_give(ctypes.c_void_p(framework.mock_framework_take(size_t(777))))
        rounds[0] += 1
        time.sleep(0.0001)


def deny_reads():
    """process_vm_readv answers EPERM from now on, as in some containers: a filter of four instructions."""
    number = {"aarch64": 270, "x86_64": 310}[os.uname().machine]
    code = struct.pack("<HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, number, 6, 0, 0, 0x00050001, 6, 0, 0, 0x7fff0000)
    instructions = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(instructions)))
    prctl = ctypes.CDLL(None).prctl
    if prctl(38, size_t(1), size_t(0), size_t(0), size_t(0)) or prctl(22, size_t(2), program):
        sys.exit("drive.py: no filter of system calls here")


def main():
    global profiler
    if "DENY_READS" in os.environ:
        deny_reads()
    cuda.cuInit(0)
    cuda.cudaMalloc(ctypes.byref(weights), size_t(4096))
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        answer = "done"
        if word == "step":
            for number in range(int(rest[0])):
                step(number)
        elif word == "framework":
            answer = str(sum(framework_step(int(rest[1])) for _ in range(int(rest[0]))))
        elif word == "take":
            framework.mock_framework_take.restype = ctypes.c_void_p
            taken.append(framework.mock_framework_take(size_t(int(rest[0]))))
        elif word == "give":
            answer = str(framework.mock_framework_give(ctypes.c_void_p(taken.pop())))
        elif word == "churn":
            churning[:] = [[0, True]]
            churning.append(threading.Thread(target=churn_framework, args=churning[:1]))
            churning[1].start()
        elif word == "churned":
            churning[0][1] = False
            churning[1].join()
            answer = str(churning[0][0])
        elif word == "load":
            library = ctypes.CDLL(rest[0])
        elif word == "load_aside":
            aside = threading.Thread(target=lambda: ctypes.CDLL(None).dlopen(rest[0].encode(), os.RTLD_NOW))
            aside.start()
        elif word == "loaded":
            aside.join()
            library = ctypes.CDLL(rest[0])
        elif word == "library_take":
            answer = str(library.mock_library_take())
        elif word == "graph":
            answer = str(framework.mock_framework_graph())
        elif word == "finalised":
            answer = str(cupti().mock_cupti_finalised())
        elif word == "launch":
            for _ in range(int(rest[0])):
                launch()
        elif word == "synchronise":
            read_loss()
        elif word == "synchronise_aside":
            threading.Thread(target=read_loss).start()
        elif word == "scale":
            scale.value = float(rest[0])
        elif word == "batch":
            batch.value = rest[0].encode()
        elif word == "fail":
            answer = str(cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), size_t(1 << 50)))
        elif word == "fork":
            answer = str(fork_and_launch())
        elif word == "exec":
            os.execv(sys.executable, [sys.executable] + sys.argv)
        elif word == "allocators":
            two_allocators(int(rest[0]))
        elif word == "stress":
            answer = stress(float(rest[0]))
        elif word == "threads":
            many_threads(int(rest[0]))
        elif word == "direct":
            three = (ctypes.c_uint64 * 3)(weights.value, 1, 2)
            one = ctypes.c_byte(3)
            for _ in range(int(rest[0])):
                cuda.mock_driver_launch((ctypes.c_void_p * 2)(ctypes.addressof(three), ctypes.addressof(one)))
        elif word == "block":
            cuda.mock_driver_launch_block((ctypes.c_uint64 * 4)(7, weights.value, 2, 3))
        elif word == "callbacks":
            answer = str(cupti().mock_cupti_callbacks())
        elif word == "missed":
            answer = str(cupti().mock_cupti_missed())
        elif word == "switched_inside":
            answer = str(cupti().mock_cupti_switched_inside())
        elif word == "copy_aside":
            copy_aside()
        elif word == "daemon_copies":
            threading.Thread(target=copy_forever, daemon=True).start()
        elif word == "copying":
            answer = str(sum(thread.is_alive() for thread in copying))
        elif word == "delay":
            cupti().mock_cupti_delay(int(rest[0]))
        elif word == "refuse":
            os.environ["MOCK_CUPTI_FAIL"] = rest[0]
        elif word == "crowd":
            crowd(int(rest[0]))
        elif word == "load_profiler":
            profiler = ctypes.CDLL(rest[0])
        elif word == "profile":
            answer = str(profiler.mock_profiler_begin())
        elif word == "count":
            answer = str(profiler.mock_profiler_count())
        elif word == "profile_unseen":
            answer = str(profiler.mock_profiler_begin_unseen())
        elif word == "profiled":
            profiler.mock_profiler_end()
            answer = f"{profiler.mock_profiler_records()} {profiler.mock_profiler_distinct()} {profiler.mock_profiler_foreign()}"
        elif word == "bare_thread":
            cuda.mock_launch_from_bare_thread()
        elif word == "daemon":
            threading.Thread(target=launch_forever, daemon=True).start()
        elif word == "spin_aside":
            begun = threading.Event()
            threading.Thread(target=spin_forever, args=(rest[0] == "1", begun), daemon=True).start()
            begun.wait()
        elif word == "take_aside":
            threading.Thread(target=take_now_and_then, daemon=True).start()
        elif word == "wait_aside":
            threading.Thread(target=framework.mock_framework_wait, daemon=True).start()
        elif word == "daemon_tracked":
            threading.Thread(target=tracked_forever, daemon=True).start()
        elif word == "disturbed":
            answer = str(cupti().mock_cupti_disturbed())
        elif word == "spoiled":
            answer = f"{cupti().mock_cupti_spoiled()} {cupti().mock_cupti_finalised_inside()}"
        elif word == "launch_aside":
            threading.Thread(target=launch, daemon=True).start()
        elif word == "fork_framework":
            child = os.fork()
            if child == 0:
                for _ in range(20):
                    framework_step(4)
                    framework.mock_framework_take(size_t(10))
                os._exit(7)
            answer = str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        elif word == "daemon_framework":
            threading.Thread(target=framework_forever, daemon=True).start()
        elif word == "ranges":
            for name in (b"epoch", b"step"):
                cuda.nvtxRangePushA(name)
            launch()
            for _ in range(2):
                cuda.nvtxRangePop()
            answer = str(cuda.nvtxRangePop())
        elif word == "_exit":
            os._exit(9)
        elif word == "runaway":
            print("running", flush=True)
            while True:
                step(0)
                time.sleep(0.001)
        elif word == "leave":
            sys.exit(int(rest[0]))
        print(answer, flush=True)


if __name__ == "__main__":
    main()
