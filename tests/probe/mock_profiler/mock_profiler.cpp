// A profiler inside of the program, as frameworks have one: it subscribes to CUPTI when it is first used, has buffers of its own
// and counts what comes back in them, and whether somebody else's come, too.

#include <dlfcn.h>
#include <stdlib.h>

#include <cstdint>
#include <set>

#include "probe/cupti_abi.h"

using namespace millrace::probe;

extern "C" {
CuptiResult cuptiSubscribe(void** subscriber, CuptiCallback callback, void* user);
CuptiResult cuptiActivityRegisterCallbacks(CuptiBufferRequest request, CuptiBufferComplete complete);
CuptiResult cuptiActivityEnable(std::uint32_t kind);
CuptiResult cuptiProfilerInitialize(void* parameters);
CuptiResult cuptiActivityDisable(std::uint32_t kind);
CuptiResult cuptiActivityFlushAll(std::uint32_t flags);
CuptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, std::uint8_t** record);
}

namespace {

std::set<std::uint8_t*> buffers;
int records = 0, foreign = 0;
std::set<std::uint32_t> numbers;

void request(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
    *size = 1 << 16;
    *most = 0;
    *buffer = static_cast<std::uint8_t*>(::malloc(*size));
    buffers.insert(*buffer);
}

void complete(void*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    if (buffers.erase(buffer) == 0) {
        ++foreign;
        return;
    }
    std::uint8_t* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == kCuptiSuccess) {
        ++records;
        numbers.insert(*reinterpret_cast<std::uint32_t*>(record + kernel_at::kCorrelation));
    }
    ::free(buffer);
}

void on_call(void*, std::uint32_t, std::uint32_t, const CuptiCall*) {}

}  // namespace

extern "C" {

/// Counters take no subscription.
int mock_profiler_count() {
    static std::uint64_t parameters[2] = {16, 0};
    return cuptiProfilerInitialize(parameters);
}

/// What CUPTI answers; without a subscription there is no profile.
int mock_profiler_begin() {
    void* subscriber = nullptr;
    if (const CuptiResult result = cuptiSubscribe(&subscriber, on_call, nullptr)) return result;
    cuptiActivityRegisterCallbacks(request, complete);
    return cuptiActivityEnable(kActivityKernel);
}

/// As a client does that looks the functions up by itself and does not subscribe.
int mock_profiler_begin_unseen() {
    using Register = CuptiResult (*)(CuptiBufferRequest, CuptiBufferComplete);
    void* library = ::dlopen(::getenv("MILLRACE_CUPTI"), RTLD_LAZY | RTLD_NOLOAD);
    return reinterpret_cast<Register>(::dlsym(library, "cuptiActivityRegisterCallbacks"))(request, complete);
}

void mock_profiler_end() {
    cuptiActivityDisable(kActivityKernel);
    cuptiActivityFlushAll(kFlushForced);
}

int mock_profiler_records() { return records; }
int mock_profiler_distinct() { return static_cast<int>(numbers.size()); }
int mock_profiler_foreign() { return foreign; }
}
