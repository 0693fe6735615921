#pragma once
// Fork and join for short work. Tasks are claimed one by one by any free thread, the caller included, so a worker that the system
// has put aside delays nothing but the task it holds. Idle workers spin for some microseconds, then sleep: nothing burns a core
// while the program waits for something else.

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace millrace::ops::cpu {

class ThreadPool {
public:
    /// `threads` counts the caller: 1 starts none. 0: one per processor this process may use. Throws std::system_error when the
    /// system gives no more threads.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

    /// Calls body(task, worker) for every task in [0, tasks), worker in [0, threads()), and returns when all are done. Allocates
    /// nothing. One caller at a time; the body must not call back into the pool. At most kMaxTasks tasks.
    template <class Body>
    void for_each(int tasks, Body&& body) noexcept {
        run(
            tasks,
            [](void* context, int task, int worker) { (*static_cast<std::remove_reference_t<Body>*>(context))(task, worker); },
            const_cast<void*>(static_cast<const void*>(&body)));
    }
    /// The same on the caller alone when `parallel` is false (work too small to hand out).
    template <class Body>
    void for_each_if(bool parallel, int tasks, Body&& body) noexcept {
        if (parallel) return for_each(tasks, body);
        for (int task = 0; task < tasks; ++task) body(task, 0);
    }

    static constexpr int kMaxTasks = (1 << 24) - 1;

private:
    using Task = void (*)(void* context, int task, int worker);
    void run(int tasks, Task task, void* context) noexcept;
    void drain(int worker) noexcept;
    void work(int worker) noexcept;
    void stop() noexcept;  ///< and join

    // One word says which tasks may be claimed: next [0, 24), count [24, 48), generation [48, 64). Claiming is one
    // compare-exchange of the whole word, so a worker that comes late can never take a task of a job it has not seen.
    alignas(64) std::atomic<std::uint64_t> word_{0};
    alignas(64) std::atomic<std::uint32_t> done_{0};
    alignas(64) std::atomic<std::uint32_t> jobs_{0};  ///< sleepers wait for it to change
    std::atomic<bool> stop_{false};
    Task task_ = nullptr;  ///< written while no task is claimable, read only by holders of a claim
    void* context_ = nullptr;
    int spin_microseconds_ = 0;
    std::vector<std::thread> workers_;
};

/// Flush-to-zero for the running thread while it lives. Numbers too small to matter cost a hundred cycles each on most
/// processors, and every thread must agree on them: a result may not depend on which thread computed it.
class FlushDenormals {
public:
    FlushDenormals() : before_(read()) {
        if ((before_ & kBits) != kBits) write(before_ | kBits);
    }
    ~FlushDenormals() {
        if ((before_ & kBits) != kBits) write(before_);
    }
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

private:
#if defined(__aarch64__)
    static constexpr std::uint64_t kBits = std::uint64_t{1} << 24;  // FPCR.FZ
    static std::uint64_t read() {
        std::uint64_t value;
        __asm__ volatile("mrs %0, fpcr" : "=r"(value));
        return value;
    }
    static void write(std::uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
#elif defined(__x86_64__)
    static constexpr std::uint64_t kBits = 0x8040;  // MXCSR: flush to zero, denormals are zero
    static std::uint64_t read() { return _mm_getcsr(); }
    static void write(std::uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#else
    static constexpr std::uint64_t kBits = 0;
    static std::uint64_t read() { return 0; }
    static void write(std::uint64_t) {}
#endif
    std::uint64_t before_;
};

}  // namespace millrace::ops::cpu
