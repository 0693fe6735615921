// The entry point: CUDA loads the library that CUDA_INJECTION64_PATH names and calls InitializeInjection during cuInit.

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>

#include "probe/activity.h"
#include "probe/arguments.h"
#include "probe/callbacks.h"
#include "probe/calls.h"
#include "probe/controller.h"
#include "probe/imports.h"
#include "probe/lanes.h"
#include "probe/log.h"
#include "probe/sites.h"
#include "probe/texts.h"

namespace millrace::probe {
namespace {

std::atomic<bool> begun{false}, in_child{false};

/// A forked child has neither the probe's thread nor a mapping of its own: it must not write into its parent's.
void become_inert() {
    in_child.store(true);
    callback_state().alive.store(false);
}

void at_end() {
    if (in_child.load()) return;
    stop_controller();
    header()->state.ended.store(1, std::memory_order_release);
}

void begin() {
    const char* folder = ::getenv("MILLRACE_PROBE_DIR");
    if (folder == nullptr || folder[0] == 0) return;
    open_log();
    if (!create_mapping(folder)) return log_line("no mapping in %s", folder);
    record::ProbeState& state = header()->state;
    prepare_calls();
    if (prepare_texts() && prepare_ranges() && prepare_sites() && prepare_arguments() && prepare_activity() &&
        ::pthread_atfork(let_fork, nullptr, become_inert) == 0) {
        find_interpreter();
        ::atexit(at_end);
        start_controller(at_end);
    } else {
        state.fault.store(static_cast<std::uint32_t>(record::ProbeFault::kNoMemory));
    }
    state.magic.store(record::kProbeMagic, std::memory_order_release);
}

}  // namespace
}  // namespace millrace::probe

// NOLINTNEXTLINE(readability-identifier-naming): CUDA looks for this name
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
    if (!millrace::probe::begun.exchange(true)) millrace::probe::begin();
    return 1;
}
