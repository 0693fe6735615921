#include "ops/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "base/processors.h"
#include "base/result.h"

namespace millrace::ops::cpu {
namespace {

constexpr std::uint64_t kMask = ThreadPool::kMaxTasks;
constexpr int kCountShift = 24, kGenerationShift = 48;

bool claimable(std::uint64_t word) { return (word & kMask) < (word >> kCountShift & kMask); }

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");  // `yield` is free on most cores, an isb waits about as long as x86's pause
#endif
}

/// Polls `ready` for a bounded time; true when it came true.
template <class Ready>
bool spin(int microseconds, Ready&& ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    do {
        for (int i = 0; i < 16; ++i) {
            if (ready()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return ready();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
    const int processors = base::usable_processors();
    if (threads <= 0) threads = processors;
    // Longer than the serial parts of a step, so that workers sleep between runs and not within one. With more threads than
    // processors spinning would keep the others from working.
    spin_microseconds_ = threads <= processors ? 200 : 0;
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    try {
        for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
    } catch (...) {
        stop();
        throw;
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() noexcept {
    stop_.store(true, std::memory_order_release);
    jobs_.fetch_add(1, std::memory_order_release);
    jobs_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int tasks, Task task, void* context) noexcept {
    if (tasks <= 0) return;
    if (tasks == 1 || workers_.empty()) {
        for (int i = 0; i < tasks; ++i) task(context, i, 0);
        return;
    }
    MILLRACE_ASSERT(tasks <= kMaxTasks);
    task_ = task;
    context_ = context;
    done_.store(0, std::memory_order_relaxed);
    const std::uint64_t generation = (word_.load(std::memory_order_relaxed) >> kGenerationShift) + 1;
    word_.store(generation << kGenerationShift | static_cast<std::uint64_t>(tasks) << kCountShift, std::memory_order_release);
    jobs_.fetch_add(1, std::memory_order_release);
    jobs_.notify_all();
    drain(0);
    const auto all = static_cast<std::uint32_t>(tasks);
    if (spin(spin_microseconds_, [&] { return done_.load(std::memory_order_acquire) == all; })) return;
    for (std::uint32_t seen = done_.load(std::memory_order_acquire); seen != all; seen = done_.load(std::memory_order_acquire))
        done_.wait(seen, std::memory_order_acquire);
}

void ThreadPool::drain(int worker) noexcept {
    std::uint64_t word = word_.load(std::memory_order_acquire);
    while (claimable(word)) {
        if (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
        task_(context_, static_cast<int>(word & kMask), worker);
        const std::uint32_t count = static_cast<std::uint32_t>(word >> kCountShift & kMask);
        if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) done_.notify_one();
        word = word_.load(std::memory_order_acquire);
    }
}

void ThreadPool::work(int worker) noexcept {
    FlushDenormals flush;
    const auto wanted = [this] {
        return claimable(word_.load(std::memory_order_acquire)) || stop_.load(std::memory_order_acquire);
    };
    for (;;) {
        if (!spin(spin_microseconds_, wanted)) {
            const std::uint32_t jobs = jobs_.load(std::memory_order_acquire);
            if (!wanted()) jobs_.wait(jobs, std::memory_order_acquire);
            continue;
        }
        if (stop_.load(std::memory_order_acquire)) return;
        drain(worker);
    }
}

}  // namespace millrace::ops::cpu
