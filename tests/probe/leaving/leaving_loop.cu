// Small pieces of work without end, for tools/probe-leaves: CUPTI comes and goes meanwhile.
//
//   leaving_loop THREADS UNLED
//
// THREADS threads launch, synchronise, copy, record events and take memory on two streams each, by way of libcudart.so, whose
// calls the probe leads. The last UNLED of them make calls of the driver instead, which nobody leads, and sleep in between.
// "ready" is printed when each has made a step. They work until the standard input ends; then "checksum GOT WANTED" is printed,
// two numbers that are equal where no work was lost or done twice. Exit status 3: there is no GPU; 4: a call failed.

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Number = unsigned long long;

constexpr int kBlocks = 2, kBlock = 128, kCells = kBlocks * kBlock;
constexpr std::size_t kBytes = kCells * sizeof(Number);

std::atomic<bool> over{false};
std::atomic<int> not_ready{0};

__global__ void add(Number* cells, Number value) { cells[blockIdx.x * blockDim.x + threadIdx.x] += value; }

void check(int result, const char* what) {
    if (result == 0) return;
    std::fprintf(stderr, "leaving_loop: %s: %d\n", what, result);
    std::_Exit(4);
}
#define CHECK(call) check(static_cast<int>(call), #call)

template <class Function>
Function* driver_call(const char* name) {
    static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    void* const address = driver != nullptr ? ::dlsym(driver, name) : nullptr;
    check(address == nullptr ? -1 : 0, name);
    return reinterpret_cast<Function*>(address);
}

void sleep_us(unsigned microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

/// What a program does between calls: a thread that is always inside of one keeps CUPTI for that reason alone.
void compute_us(unsigned microseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    while (std::chrono::steady_clock::now() < end) {
    }
}

class Worker {
public:
    explicit Worker(unsigned seed) : random_(seed) {
        CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming));
        CHECK(cudaMalloc(&cells_, kBytes));
        CHECK(cudaMalloc(&scratch_, kBytes));
        CHECK(cudaMallocHost(&host_, kBytes));
        CHECK(cudaMemset(cells_, 0, kBytes));
        CHECK(cudaMemset(scratch_, 0, kBytes));
        CHECK(cudaDeviceSynchronize());
    }

    /// Until `over`; the main thread is the one that sees the input's end.
    void work(bool led, bool sleeps, bool watches_input) {
        CHECK(cudaSetDevice(0));
        CHECK(cudaFree(nullptr));  // the driver's calls need what this makes current
        for (bool first = true; !over; first = false) {
            led ? step(sleeps) : burst();
            if (first && --not_ready == 0) {
                std::puts("ready");
                std::fflush(stdout);
            }
            pollfd input{STDIN_FILENO, POLLIN, 0};
            if (watches_input && ::poll(&input, 1, 0) != 0) over = true;
        }
    }

    /// Adds what the cells hold, and what they should.
    void sum(Number& got, Number& wanted) {
        CHECK(cudaStreamSynchronize(stream_));
        CHECK(cudaMemcpy(host_, cells_, kBytes, cudaMemcpyDeviceToHost));
        for (int i = 0; i < kCells; ++i) got += host_[i];
        wanted += kCells * added_;
    }

private:
    void launch(Number* cells, Number value, cudaStream_t stream) {
        add<<<kBlocks, kBlock, 0, stream>>>(cells, value);
        CHECK(cudaGetLastError());
        if (cells == cells_) added_ += value;
    }

    /// One set, sixteen launches, a branch to the other stream and back, a copy and a synchronisation; some steps take memory,
    /// too.
    void step(bool sleeps) {
        ++steps_;
        CHECK(cudaMemsetAsync(scratch_, static_cast<int>(steps_ % 256), kBytes, stream_));
        for (Number i = 0; i < 12; ++i) launch(cells_, i, stream_);
        CHECK(cudaEventRecord(forked_, stream_));
        CHECK(cudaStreamWaitEvent(second_, forked_, 0));
        for (Number i = 0; i < 3; ++i) launch(cells_, i, second_);
        CHECK(cudaEventRecord(joined_, second_));
        CHECK(cudaStreamWaitEvent(stream_, joined_, 0));
        launch(scratch_, 1, stream_);
        if (steps_ % 3 == 0) take_in_order();
        if (steps_ % 8 == 0) take();
        CHECK(cudaMemcpyAsync(host_, cells_, kBytes, cudaMemcpyDeviceToHost, stream_));
        CHECK(cudaStreamSynchronize(stream_));
        if (host_[steps_ % kCells] != added_) check(-1, "a cell has another number");
        compute_us(random_() % 60);
        if (steps_ % 16 == 0) CHECK(cudaDeviceSynchronize());
        if (sleeps && steps_ % 16 == 0) sleep_us(100 + random_() % 900);
    }

    void take() {
        Number* piece = nullptr;
        CHECK(cudaMalloc(&piece, kBytes + random_() % 4096));
        CHECK(cudaMemcpy(piece, cells_, kBytes, cudaMemcpyDeviceToDevice));
        launch(piece, 1, stream_);
        CHECK(cudaStreamSynchronize(stream_));
        CHECK(cudaFree(piece));
    }

    void take_in_order() {
        Number* piece = nullptr;
        CHECK(cudaMallocAsync(reinterpret_cast<void**>(&piece), kBytes + random_() % 4096, stream_));
        CHECK(cudaMemcpyAsync(piece, cells_, kBytes, cudaMemcpyDeviceToDevice, stream_));
        launch(piece, 1, stream_);
        CHECK(cudaFreeAsync(piece, stream_));
    }

    /// The same kernel by the driver's own calls; sleeps 1 to 20 ms.
    void burst() {
        static auto* const driver_launch = driver_call<decltype(cuLaunchKernel)>("cuLaunchKernel");
        static auto* const driver_set = driver_call<decltype(cuMemsetD32Async)>("cuMemsetD32Async");
        static auto* const driver_wait = driver_call<decltype(cuStreamSynchronize)>("cuStreamSynchronize");
        if (function_ == nullptr) CHECK(cudaGetFuncBySymbol(&function_, reinterpret_cast<const void*>(add)));
        for (unsigned rounds = 1 + random_() % 20; rounds > 0; --rounds) {
            Number value = rounds;
            void* arguments[] = {&cells_, &value};
            CHECK(driver_launch(function_, kBlocks, 1, 1, kBlock, 1, 1, 0, stream_, arguments, nullptr));
            added_ += value;
            CHECK(driver_set(reinterpret_cast<CUdeviceptr>(scratch_), rounds, kCells, stream_));
            if (rounds % 4 == 0) CHECK(driver_wait(stream_));
        }
        CHECK(driver_wait(stream_));
        sleep_us(1'000 + random_() % 19'000);
    }

    std::minstd_rand random_;
    cudaStream_t stream_ = nullptr, second_ = nullptr;
    cudaEvent_t forked_ = nullptr, joined_ = nullptr;
    cudaFunction_t function_ = nullptr;
    Number *cells_ = nullptr, *scratch_ = nullptr, *host_ = nullptr;
    Number added_ = 0, steps_ = 0;  ///< to each cell
};

}  // namespace

int main(int count, char** words) {
    const int threads = count > 1 ? std::atoi(words[1]) : 1, unled = count > 2 ? std::atoi(words[2]) : 0;
    int devices = 0;
    if (const cudaError_t result = cudaGetDeviceCount(&devices); result != cudaSuccess || devices == 0) {
        std::fprintf(stderr, "leaving_loop: no GPU: %s\n", cudaGetErrorString(result));
        return 3;
    }
    not_ready = threads;
    std::vector<Worker> workers;
    for (int i = 0; i < threads; ++i) workers.emplace_back(static_cast<unsigned>(i) + 1);
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i)
        others.emplace_back([&workers, i, threads, unled] { workers[i].work(i < threads - unled, true, false); });
    workers[0].work(true, threads > 1, true);
    for (std::thread& other : others) other.join();
    Number got = 0, wanted = 0;
    for (Worker& worker : workers) worker.sum(got, wanted);
    std::printf("checksum %llu %llu\n", got, wanted);
    return 0;
}
