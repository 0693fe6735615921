#include "probe/handover.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include <atomic>

#include "probe/callbacks.h"
#include "probe/imports.h"
#include "probe/lanes.h"
#include "probe/log.h"

namespace millrace::probe {
namespace {

std::atomic<bool> wanted{false}, is_free{false};

/// The library that an address lies in becomes the incumbent, by its name without a folder.
void name_client(const void* address) {
    Dl_info info{};
    const char* path = ::dladdr(address, &info) != 0 ? info.dli_fname : nullptr;
    if (path == nullptr) return;
    const char* slash = ::strrchr(path, '/');
    ::strncpy(header()->state.incumbent, slash != nullptr ? slash + 1 : path, sizeof header()->state.incumbent - 1);
}

/// Waits in the program's thread until the probe has left; three seconds at most, as nothing of the program waits longer.
void make_way(const char* name, const void* caller) {
    if (!callback_state().alive.load(std::memory_order_acquire) || is_free.load(std::memory_order_acquire)) return;
    if (!wanted.exchange(true)) {
        name_client(caller);
        log_line("makes way for %s of %s", name, header()->state.incumbent);
    }
    wake_controller();
    const timespec moment{0, 1'000'000};
    for (int tries = 0; tries < 3'000 && !is_free.load(std::memory_order_acquire); ++tries) ::nanosleep(&moment, nullptr);
}

CuptiResult subscribe(void** subscriber, CuptiCallback callback, void* user) {
    make_way("cuptiSubscribe", __builtin_return_address(0));
    return callback_state().cupti.subscribe(subscriber, callback, user);
}

CuptiResult subscribe_by_name(void** subscriber, CuptiCallback callback, void* user, CuptiSubscriberParameters* parameters) {
    make_way("cuptiSubscribe_v2", __builtin_return_address(0));
    return callback_state().cupti.subscribe_by_name(subscriber, callback, user, parameters);
}

CuptiResult register_buffers(CuptiBufferRequest request, CuptiBufferComplete complete) {
    make_way("cuptiActivityRegisterCallbacks", __builtin_return_address(0));
    return callback_state().cupti.register_buffers(request, complete);
}

std::atomic<bool> counts{false};

/// The first call of each way to count: all have one to three words.
constexpr const char* kCounting[] = {"cuptiProfilerInitialize",  "cuptiEventGroupCreate", "cuptiPCSamplingEnable",
                                     "cuptiRangeProfilerEnable", "cuptiPmSamplingEnable", "cuptiSassMetricsEnable"};
constexpr unsigned kCountingCalls = sizeof kCounting / sizeof kCounting[0];
void* counting[kCountingCalls];

template <unsigned place>
CuptiResult note_counting(void* first, void* second, void* third) {
    counts.store(true);
    CuptiResult (*function)(void*, void*, void*);
    static_assert(sizeof function == sizeof counting[0]);
    ::memcpy(&function, &counting[place], sizeof function);
    return function(first, second, third);
}

template <unsigned place = 0>
unsigned lead_counting(void* library, Import* imports, unsigned count) {
    if constexpr (place < kCountingCalls) {
        counting[place] = ::dlsym(library, kCounting[place]);
        if (counting[place] != nullptr) imports[count++] = {kCounting[place], reinterpret_cast<void*>(note_counting<place>)};
        return lead_counting<place + 1>(library, imports, count);
    }
    return count;
}

}  // namespace

bool counts_with_cupti() { return counts.load(); }

void watch_for_clients() {
    static ImportWatch watch{"cupti", "cupti"};
    const Cupti& cupti = callback_state().cupti;
    Import imports[3 + kCountingCalls] = {{"cuptiSubscribe", reinterpret_cast<void*>(subscribe)},
                                          {"cuptiActivityRegisterCallbacks", reinterpret_cast<void*>(register_buffers)}};
    unsigned count = 2;
    if (cupti.subscribe_by_name != nullptr) imports[count++] = {"cuptiSubscribe_v2", reinterpret_cast<void*>(subscribe_by_name)};
    const unsigned changed = replace_imports(watch, imports, lead_counting(cupti.library, imports, count));
    if (changed > 0) log_line("watches %u places where CUPTI may be wanted", changed);
}

bool handover_is_wanted() { return wanted.load(std::memory_order_acquire); }
void end_handover() { is_free.store(true, std::memory_order_release); }

}  // namespace millrace::probe
