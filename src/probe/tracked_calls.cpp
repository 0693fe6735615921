#include "probe/tracked_calls.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "probe/arguments.h"
#include "probe/callbacks.h"
#include "probe/clock.h"
#include "probe/departure.h"
#include "probe/imports.h"
#include "probe/lanes.h"
#include "probe/log.h"
#include "probe/memory.h"

namespace millrace::probe {
namespace {

constexpr int kRounds = 50;  ///< of a millisecond: nothing of the program waits longer

std::atomic<std::uint32_t> is_shut{0};  ///< a futex
std::atomic<std::uint32_t> inside{0};

using record::CallKind;

struct Sizes {  ///< dim3
    std::uint32_t x, y, z;
};

/// The functions themselves, by their places in kCalls.
std::atomic<void*> originals[32];

/// Around a call of the program's.
class TrackedCall {
public:
    explicit TrackedCall(CallKind kind) {
        CallbackState& state = callback_state();
        if (!state.alive.load(std::memory_order_relaxed)) return;
        note_graphs(kind);
        gated_ = state.finalizing.load(std::memory_order_relaxed) != Finalizing::kDone;
        if (gated_) enter_tracked();
        if (state.mode.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(record::ProbeMode::kFull)) {
            thread_ = this_thread();
            if (thread_ != nullptr) ++thread_->tracked;
        }
        count_tracked(kind);
    }
    ~TrackedCall() {
        if (thread_ != nullptr) --thread_->tracked;
        if (!gated_) return;
        leave_tracked();
        depart_if_wanted();
    }
    TrackedCall(const TrackedCall&) = delete;
    TrackedCall& operator=(const TrackedCall&) = delete;

private:
    ThreadState* thread_ = nullptr;
    bool gated_ = false;
};

/// Around a call that takes or gives memory: whether CUPTI is on its way out or gone, and has not told of it.
class Unseen {
public:
    Unseen() {
        CallbackState& state = callback_state();
        if (!state.alive.load(std::memory_order_relaxed) || !state.alone.load(std::memory_order_acquire)) return;
        thread_ = this_thread();
        if (thread_ == nullptr) return;
        told_ = thread_->memory_told;
        begin_ = now();
    }
    [[nodiscard]] bool may_be() const { return thread_ != nullptr; }
    [[nodiscard]] bool is() const { return thread_ != nullptr && thread_->memory_told == told_; }
    [[nodiscard]] std::uint64_t begin() const { return begin_; }

private:
    ThreadState* thread_ = nullptr;
    std::uint32_t told_ = 0;
    std::uint64_t begin_ = 0;
};

template <std::uint32_t place, class... Words>
int original(Words... words) {
    void* const address = originals[place].load(std::memory_order_relaxed);
    int (*function)(Words...);
    static_assert(sizeof function == sizeof address);
    ::memcpy(&function, &address, sizeof function);
    return function(words...);
}

template <std::uint32_t place, CallKind kind, class... Words>
int tracked(Words... words) {
    const TrackedCall call(kind);
    return original<place>(words...);
}

template <std::uint32_t place, CallKind kind, class... Words>
int tracked_take(void** pointer, std::size_t bytes, Words... words) {
    const TrackedCall call(kind);
    const Unseen unseen;
    const int result = original<place>(pointer, bytes, words...);
    if (unseen.is() && result == 0 && pointer != nullptr)
        memory_taken(kind, reinterpret_cast<std::uint64_t>(*pointer), bytes, unseen.begin());
    return result;
}

template <std::uint32_t place, CallKind kind, class... Words>
int tracked_give(void* pointer, Words... words) {
    const TrackedCall call(kind);
    const Unseen unseen;
    // The address may belong to another thread before this call has returned.
    const std::uint64_t bytes = unseen.may_be() ? remove_range(reinterpret_cast<std::uint64_t>(pointer)) : 0;
    const int result = original<place>(pointer, words...);
    if (unseen.is() && result == 0) memory_given(kind, reinterpret_cast<std::uint64_t>(pointer), bytes, unseen.begin());
    return result;
}

template <class... Words>
void* address_of(int (*function)(Words...)) {
    return reinterpret_cast<void*>(function);
}

/// Handles of the runtime are pointers.
using Handle = void*;

Import calls[] = {
    {"cudaLaunchKernel", address_of(tracked<0, CallKind::kLaunch, const void*, Sizes, Sizes, void**, std::size_t, Handle>)},
    {"cudaLaunchKernelExC", address_of(tracked<1, CallKind::kLaunch, const void*, const void*, void**>)},
    {"cudaGraphLaunch", address_of(tracked<2, CallKind::kGraphLaunch, Handle, Handle>)},
    {"cudaStreamBeginCapture", address_of(tracked<3, CallKind::kCapture, Handle, int>)},
    {"cudaMemcpyAsync", address_of(tracked<4, CallKind::kCopyAsync, void*, const void*, std::size_t, int, Handle>)},
    {"cudaMemcpy", address_of(tracked<5, CallKind::kCopy, void*, const void*, std::size_t, int>)},
    {"cudaMemsetAsync", address_of(tracked<6, CallKind::kSetAsync, void*, int, std::size_t, Handle>)},
    {"cudaMemset", address_of(tracked<7, CallKind::kSet, void*, int, std::size_t>)},
    {"cudaEventRecord", address_of(tracked<8, CallKind::kEventRecord, Handle, Handle>)},
    {"cudaEventRecordWithFlags", address_of(tracked<9, CallKind::kEventRecord, Handle, Handle, unsigned>)},
    {"cudaStreamWaitEvent", address_of(tracked<10, CallKind::kStreamWait, Handle, Handle, unsigned>)},
    {"cudaStreamSynchronize", address_of(tracked<11, CallKind::kStreamSync, Handle>)},
    {"cudaEventSynchronize", address_of(tracked<12, CallKind::kEventSync, Handle>)},
    {"cudaDeviceSynchronize", address_of(tracked<13, CallKind::kDeviceSync>)},
    {"cudaLaunchHostFunc", address_of(tracked<14, CallKind::kHostFunction, Handle, void*, void*>)},
    {"cudaMalloc", address_of(tracked_take<15, CallKind::kAlloc>)},
    {"cudaMallocAsync", address_of(tracked_take<16, CallKind::kAllocAsync, Handle>)},
    {"cudaFree", address_of(tracked_give<17, CallKind::kFree>)},
    {"cudaFreeAsync", address_of(tracked_give<18, CallKind::kFreeAsync, Handle>)},
    {"__cudaLaunchKernel", address_of(tracked<19, CallKind::kLaunch, Handle, Sizes, Sizes, void**, std::size_t, Handle>)},
    {"cudaStreamBeginCaptureToGraph",
     address_of(tracked<20, CallKind::kCapture, Handle, Handle, const Handle*, const void*, std::size_t, int>)},
    {"cudaStreamBeginCapture_ptsz", address_of(tracked<21, CallKind::kCapture, Handle, int>)},
    {"cudaStreamBeginCaptureToGraph_ptsz",
     address_of(tracked<22, CallKind::kCapture, Handle, Handle, const Handle*, const void*, std::size_t, int>)},
    {"cudaGraphLaunch_ptsz", address_of(tracked<23, CallKind::kGraphLaunch, Handle, Handle>)},
    {"cudaEventQuery", address_of(tracked<24, CallKind::kEventQuery, Handle>)},
    {"cudaStreamQuery", address_of(tracked<25, CallKind::kStreamQuery, Handle>)},
};
constexpr std::uint32_t kCalls = sizeof calls / sizeof calls[0];
static_assert(kCalls <= sizeof originals / sizeof originals[0]);

/// The name by which libraries need this one.
const char* name_of(void* library) {
    const link_map* map = nullptr;
    if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return nullptr;
    const char* strings = nullptr;
    const ElfW(Dyn)* name = nullptr;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_STRTAB) strings = pointer_to<const char>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_SONAME) name = entry;
    }
    return strings != nullptr && name != nullptr ? strings + name->d_un.d_val : nullptr;
}

ImportWatch watch{nullptr, "cuda", "__cuda"};

/// Of several runtimes the first that is found.
bool find_runtime() {
    if (watch.needed != nullptr) return true;
    void* const library = loaded_library("libcudart.so");
    const char* const name = library != nullptr ? name_of(library) : nullptr;
    if (name == nullptr) return false;
    for (std::uint32_t place = 0; place < kCalls; ++place) {
        calls[place].original = ::dlsym(library, calls[place].name);
        void* const others = ::dlsym(RTLD_DEFAULT, calls[place].name);  // another tool's, which comes before the runtime's
        calls[place].also_unbound = others == nullptr || others == calls[place].original;
        if (calls[place].original == nullptr) calls[place].name = "";  // an old runtime: no library imports it
        originals[place].store(calls[place].original);
    }
    watch.needed = name;
    return true;
}

}  // namespace

void enter_tracked() {
    for (int round = 0;; ++round) {
        inside.fetch_add(1);
        if (is_shut.load() == 0) return;
        if (round == kRounds) return open_gate();  // for all: not every further call shall wait as long
        inside.fetch_sub(1);
        const timespec most{0, 1'000'000};
        ::syscall(SYS_futex, &is_shut, FUTEX_WAIT_PRIVATE, 1, &most, nullptr, 0);
    }
}

void leave_tracked() { inside.fetch_sub(1); }

bool shut_gate(std::uint64_t patience) {
    is_shut.store(1);
    for (const std::uint64_t since = now(); inside.load() > 0; ::sched_yield())
        if (now() - since >= patience) return false;
    return true;
}

void open_gate() {
    is_shut.store(0);
    ::syscall(SYS_futex, &is_shut, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void track_calls() {
    if (!find_runtime()) return;
    const unsigned changed = replace_imports(watch, calls, kCalls);
    if (changed > 0) log_line("leads %u places where %s is called", changed, watch.needed);
}

}  // namespace millrace::probe
