// A stand-in for libcuda and libcudart in one, so that the probe can be driven end to end without a GPU. As the driver does, it
// loads the library that CUDA_INJECTION64_PATH names when CUDA is initialised and calls InitializeInjection. Kernels take no
// time: they only leave records. Runtime calls that launch, allocate or free make a call of the driver inside, as the real ones
// do.
//
//   MOCK_CUDA_SYNC_MS=5     how long synchronisations take (0)
//   MOCK_CUDA_COPY_MS=5     how long copies hold the host up (0)
//   MOCK_CUDA_DRIVER=12080  what cuDriverGetVersion says (13000)

#include "mock_cuda/mock_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>

namespace millrace::mock {
namespace {

constexpr std::uint32_t kDriver = 1, kRuntime = 2;

Hooks hooks;
std::atomic<std::uint64_t> next_address{0x7f0000000000};
int context_object = 0;
pthread_mutex_t framework_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_once_t initialised = PTHREAD_ONCE_INIT;

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
    const char* text = ::getenv(name);
    return text != nullptr ? ::strtoull(text, nullptr, 10) : otherwise;
}

void initialise() {
    const char* path = ::getenv("CUDA_INJECTION64_PATH");
    void* library = path != nullptr ? ::dlopen(path, RTLD_NOW) : nullptr;
    if (library == nullptr) return;
    if (auto begin = reinterpret_cast<int (*)()>(::dlsym(library, "InitializeInjection"))) begin();
}

void ensure_initialised() { ::pthread_once(&initialised, initialise); }

/// One call: tells its begin and its end.
class Call {
public:
    Call(std::uint32_t domain, std::uint32_t number, const char* name, const void* parameters, const char* symbol = nullptr) {
        ensure_initialised();
        event_ = {domain, number, false, name, parameters, &result, symbol, &context_object, &kept_, false, nullptr};
        if (hooks.call != nullptr) hooks.call(event_);
    }
    ~Call() {
        event_.is_exit = true;
        if (hooks.call != nullptr) hooks.call(event_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    int result = 0;

private:
    CallEvent event_;
    std::uint64_t kept_ = 0;
};

void tell(WorkEvent event) {
    if (hooks.work != nullptr) hooks.work(event);
}

void wait_for_device(const char* time_name = "MOCK_CUDA_SYNC_MS") {
    const std::uint64_t milliseconds = number_from(time_name, 0);
    const timespec time{static_cast<time_t>(milliseconds / 1000), static_cast<long>(milliseconds % 1000 * 1'000'000)};
    if (milliseconds != 0) ::nanosleep(&time, nullptr);
}

struct Sizes {
    std::uint32_t x, y, z;
};

struct Function {
    const char* name;
    std::uint32_t parameters;
    std::size_t offset[4], size[4];
};
// A pointer and a number; a structure with two pointers and a float, and a byte.
Function functions[] = {{"_Z5scalePff", 2, {0, 8}, {8, 4}}, {"_Z3add6Arraysc", 2, {0, 24}, {24, 1}}};

/// What the runtime launches lies in libraries: the driver answers for it under other names than for functions.
struct Kernel {
    const Function* function;
} kernels[] = {{&functions[0]}, {&functions[1]}};
constexpr int kInvalidValue = 1, kInvalidHandle = 400;

int tell_parameter(const Function& function, std::size_t index, std::size_t* offset, std::size_t* size) {
    if (index >= function.parameters) return kInvalidValue;
    *offset = function.offset[index];
    *size = function.size[index];
    return 0;
}

struct LaunchParameters {
    const void* function;
    Sizes grid, block;
    void** arguments;
    std::size_t shared;
    void* stream;
};
struct DriverLaunchParameters {
    void* function;
    Sizes grid, block;
    std::uint32_t shared;
    void* stream;
    void **arguments, **extra;
};

struct TakeParameters {
    void** pointer;
    std::size_t bytes;
};

using RangeFunction = void (*)();
RangeFunction range_functions[16];
RangeFunction* range_table[16];
pthread_once_t ranges_initialised = PTHREAD_ONCE_INIT;

int range_module(std::uint32_t module, RangeFunction*** table, std::uint32_t* size) {
    if (module != 1) return 0;
    *table = range_table;
    *size = 16;
    return 1;
}

const void* range_export(std::uint32_t table) {
    static const struct {
        std::size_t size;
        int (*module)(std::uint32_t, RangeFunction***, std::uint32_t*);
    } callbacks{sizeof callbacks, range_module};
    return table == 1 ? &callbacks : nullptr;
}

void ensure_ranges() {
    ::pthread_once(&ranges_initialised, [] {
        for (int i = 0; i < 16; ++i) range_table[i] = &range_functions[i];
        const char* path = ::getenv("NVTX_INJECTION64_PATH");
        void* library = path != nullptr ? ::dlopen(path, RTLD_NOW) : nullptr;
        if (library == nullptr) return;
        using Initialise = int (*)(const void* (*)(std::uint32_t));
        if (auto begin = reinterpret_cast<Initialise>(::dlsym(library, "InitializeInjectionNvtx2"))) begin(range_export);
    });
}

}  // namespace
}  // namespace millrace::mock

using namespace millrace::mock;

extern "C" {

void mock_cuda_set_hooks(const Hooks* wanted) { hooks = *wanted; }

int cuInit(unsigned) {
    ensure_initialised();
    return 0;
}

int cuDriverGetVersion(int* version) {
    *version = static_cast<int>(number_from("MOCK_CUDA_DRIVER", 13000));
    return 0;
}

int cuFuncGetParamInfo(void* function, std::size_t index, std::size_t* offset, std::size_t* size) {
    for (const Function& known : functions)
        if (function == &known) return tell_parameter(known, index, offset, size);
    return kInvalidHandle;
}

int cuKernelGetParamInfo(void* kernel, std::size_t index, std::size_t* offset, std::size_t* size) {
    for (const Kernel& known : kernels)
        if (kernel == &known) return tell_parameter(*known.function, index, offset, size);
    return kInvalidHandle;
}

/// Launches function 0 or 1; `arguments` as the real call has them.
int mock_launch(int which, std::uint32_t grid, std::uint32_t block, void** arguments, std::uint64_t stream) {
    Function& function = functions[which];
    const LaunchParameters parameters{&function, {grid, 1, 1}, {block, 1, 1}, arguments, 0, reinterpret_cast<void*>(stream)};
    Call call(kRuntime, 211, "cudaLaunchKernel", &parameters, function.name);
    const DriverLaunchParameters inner{&kernels[which], {grid, 1, 1}, {block, 1, 1}, 0, parameters.stream, arguments, nullptr};
    Call driver(kDriver, 307, "cuLaunchKernel", &inner, function.name);
    WorkEvent work{};
    work.work = Work::kKernel;
    work.stream = static_cast<std::uint32_t>(7 + stream);
    work.queued_ns = 1000;
    work.running_ns = 5000;
    work.name = function.name;
    const std::uint32_t sizes[6] = {grid, 1, 1, block, 1, 1};
    ::memcpy(work.sizes, sizes, sizeof sizes);
    tell(work);
    return 0;
}

int cudaGraphLaunch(void* graph, void* stream) {
    const void* const parameters[] = {graph, stream};
    Call call(kRuntime, 311, "cudaGraphLaunch", parameters);
    WorkEvent work{};
    work.stream = 7;
    work.running_ns = 9000;
    work.work = Work::kKernel;
    work.name = functions[0].name;
    for (work.node = 11; work.node < 13; ++work.node) tell(work);
    return 0;
}

int cudaMalloc(void** pointer, std::size_t bytes) {
    const TakeParameters parameters{pointer, bytes};
    Call call(kRuntime, 20, "cudaMalloc", &parameters);
    if (bytes == 0 || bytes > std::size_t{1} << 40) return call.result = 2;
    Call driver(kDriver, 243, "cuMemAlloc_v2", &parameters);
    *pointer = reinterpret_cast<void*>(next_address.fetch_add((bytes + 511) / 512 * 512));
    return 0;
}

int cudaFree(void* pointer) {
    Call call(kRuntime, 22, "cudaFree", &pointer);
    Call driver(kDriver, 245, "cuMemFree_v2", &pointer);
    return 0;
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
    struct {
        void* to;
        const void* from;
        std::size_t bytes;
        int kind;
        void* stream;
    } const parameters{to, from, bytes, kind, stream};
    Call call(kRuntime, 41, "cudaMemcpyAsync", &parameters);
    WorkEvent work{};
    work.work = Work::kCopy;
    work.stream = 7;
    work.bytes = bytes;
    work.running_ns = 3000;
    work.from = kind == 1 ? 1 : 3;
    work.to = kind == 1 ? 3 : 1;
    tell(work);
    wait_for_device("MOCK_CUDA_COPY_MS");
    return 0;
}

int cudaMemsetAsync(void* to, int value, std::size_t bytes, void* stream) {
    struct {
        void* to;
        int value;
        std::size_t bytes;
        void* stream;
    } const parameters{to, value, bytes, stream};
    Call call(kRuntime, 51, "cudaMemsetAsync", &parameters);
    WorkEvent work{};
    work.work = Work::kSet;
    work.stream = 7;
    work.bytes = bytes;
    work.running_ns = 2000;
    work.to = 3;
    tell(work);
    return 0;
}

int cudaStreamSynchronize(void* stream) {
    Call call(kRuntime, 131, "cudaStreamSynchronize", &stream);
    wait_for_device();
    return 0;
}

int cudaDeviceSynchronize() {
    Call call(kRuntime, 165, "cudaDeviceSynchronize", nullptr);
    wait_for_device();
    return 0;
}

int cudaEventRecord(void* event, void* stream) {
    const void* const parameters[] = {event, stream};
    Call call(kRuntime, 135, "cudaEventRecord", parameters);
    return 0;
}

/// A launch by way of the driver alone.
int mock_driver_launch(void** arguments) {
    const DriverLaunchParameters parameters{&functions[1], {5, 1, 1}, {64, 1, 1}, 0, nullptr, arguments, nullptr};
    Call call(kDriver, 307, "cuLaunchKernel", &parameters, functions[1].name);
    return 0;
}

/// The same with the arguments in one block of 25 bytes.
int mock_driver_launch_block(void* bytes) {
    std::size_t size = 25;
    void* block[] = {reinterpret_cast<void*>(1), bytes, reinterpret_cast<void*>(2), &size, nullptr};
    const DriverLaunchParameters parameters{&functions[1], {5, 1, 1}, {64, 1, 1}, 0, nullptr, nullptr, block};
    Call call(kDriver, 307, "cuLaunchKernel", &parameters, functions[1].name);
    return 0;
}

/// Launches from a thread that no interpreter knows, as frameworks do for the backward pass.
void mock_launch_from_bare_thread() {
    pthread_t thread;
    const auto body = [](void*) -> void* {
        ::pthread_setname_np(::pthread_self(), "bare_thread");
        void *pointer = nullptr, *arguments[] = {&pointer, &pointer};
        mock_launch(0, 3, 32, arguments, 0);
        return nullptr;
    };
    if (::pthread_create(&thread, nullptr, body, nullptr) == 0) ::pthread_join(thread, nullptr);
}

/// NVTX as a program has it: at the first use it loads the library that NVTX_INJECTION64_PATH names and lets it fill its tables.
int nvtxRangePushA(const char* name) {
    ensure_ranges();
    return range_functions[9] != nullptr ? reinterpret_cast<int (*)(const char*)>(range_functions[9])(name) : -2;
}
int nvtxRangePop() {
    ensure_ranges();
    return range_functions[11] != nullptr ? reinterpret_cast<int (*)()>(range_functions[11])() : -2;
}

/// A framework's allocator: takes its own lock and calls cudaMalloc or cudaFree under it.
int mock_framework_allocate(void** pointer, std::size_t bytes) {
    ::pthread_mutex_lock(&framework_lock);
    const int result = *pointer == nullptr ? cudaMalloc(pointer, bytes) : cudaFree(*pointer);
    ::pthread_mutex_unlock(&framework_lock);
    return result;
}
}
