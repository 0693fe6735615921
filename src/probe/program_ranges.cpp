// Ranges that the program marks itself. NVTX is header code in the program that loads the library NVTX_INJECTION64_PATH names at
// its first use and calls InitializeInjectionNvtx2, which may put functions of its own into NVTX's tables. Outside of windows a
// range costs a look at the thread's state; names are read inside of windows alone.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "probe/callbacks.h"
#include "probe/clock.h"
#include "probe/cupti_abi.h"
#include "probe/lanes.h"
#include "probe/texts.h"

namespace millrace::probe {
namespace {

using record::ProbeMode;

/// The thread's state when there is a listener.
ThreadState* listening_thread() { return callback_state().alive.load(std::memory_order_relaxed) ? this_thread() : nullptr; }

bool in_window() { return callback_state().mode.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(ProbeMode::kFull); }

int push(const char* name) {
    ThreadState* thread = listening_thread();
    if (thread == nullptr) return 0;
    const std::uint32_t depth = thread->range_depth++;
    if (depth >= ThreadState::kMostRanges) return static_cast<int>(depth);
    OpenRange& range = thread->ranges[depth];
    range.name = name != nullptr && in_window() ? text_number(*thread, name) : 0;
    range.begin = range.name != 0 ? now() : 0;
    return static_cast<int>(depth);
}

int pop() {
    ThreadState* thread = listening_thread();
    if (thread == nullptr || thread->range_depth == 0) return 0;
    const std::uint32_t depth = --thread->range_depth;
    if (depth >= ThreadState::kMostRanges || thread->ranges[depth].name == 0) return static_cast<int>(depth);
    record::Record range;
    range.kind = record::RecordKind::kRange;
    range.thread = thread->thread;
    range.begin = thread->ranges[depth].begin;
    range.end = now();
    range.id = thread->ranges[depth].name;
    append(*thread, &range, 1);
    return static_cast<int>(depth);
}

const char* name_in(const void* attributes) {
    if (attributes == nullptr) return nullptr;
    std::int32_t type;
    const char* name;
    std::memcpy(&type, static_cast<const char*>(attributes) + nvtx_at::kMessageType, sizeof type);
    std::memcpy(&name, static_cast<const char*>(attributes) + nvtx_at::kMessage, sizeof name);
    return type == kNvtxAscii ? name : nullptr;
}

int push_text(const char* name) { return push(name); }
int push_attributes(const void* attributes) { return push(name_in(attributes)); }
int push_in_domain(void*, const void* attributes) { return push(name_in(attributes)); }
int pop_in_domain(void*) { return pop(); }

template <class Function>
void put(NvtxTable table, std::uint32_t size, std::uint32_t index, Function function) {
    if (index < size && table[index] != nullptr) *table[index] = reinterpret_cast<NvtxFunction>(function);
}

bool install(const NvtxCallbacks& callbacks) {
    NvtxTable table = nullptr;
    std::uint32_t size = 0;
    if (callbacks.module_table(kNvtxCore, &table, &size) == 0 || table == nullptr) return false;
    put(table, size, kNvtxPushEx, push_attributes);
    put(table, size, kNvtxPushA, push_text);
    put(table, size, kNvtxPop, pop);
    table = nullptr;
    if (callbacks.module_table(kNvtxCore2, &table, &size) == 0 || table == nullptr) return true;
    put(table, size, kNvtxDomainPushEx, push_in_domain);
    put(table, size, kNvtxDomainPop, pop_in_domain);
    return true;
}

/// What a program brings along in its own code takes the ranges when no library is named. It keeps them.
using Injection = int (*)(NvtxGetTable);
Injection own_injection() {
    Injection found = nullptr;
    if (void* early = ::dlsym(RTLD_DEFAULT, "InitializeInjectionNvtx2Preinject")) {
        std::memcpy(&found, &early, sizeof found);
    } else if (void* place = ::dlsym(RTLD_DEFAULT, "InitializeInjectionNvtx2_fnptr")) {
        std::memcpy(&found, place, sizeof found);
    }
    return found;
}

}  // namespace
}  // namespace millrace::probe

// NOLINTNEXTLINE(readability-identifier-naming): NVTX looks for this name
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(millrace::probe::NvtxGetTable get_table) {
    using namespace millrace::probe;
    const auto* callbacks = get_table != nullptr ? static_cast<const NvtxCallbacks*>(get_table(kNvtxCallbacks)) : nullptr;
    if (const auto theirs = own_injection()) return theirs(get_table);
    if (callbacks == nullptr || callbacks->size < sizeof *callbacks || callbacks->module_table == nullptr) return 0;
    return install(*callbacks) ? 1 : 0;
}
