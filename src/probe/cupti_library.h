#pragma once
// CUPTI as it is found in the running process. It is never linked: the host's own copy is used when there is one.

#include <cstdint>

#include "probe/cupti_abi.h"

namespace millrace::probe {

struct Cupti {
    void* library = nullptr;
    CuptiResult (*subscribe)(void** subscriber, CuptiCallback callback, void* user) = nullptr;
    CuptiResult (*subscribe_by_name)(void** subscriber, CuptiCallback callback, void* user,
                                     CuptiSubscriberParameters* parameters) = nullptr;  ///< from 13.0 on, else null
    CuptiResult (*unsubscribe)(void* subscriber) = nullptr;
    CuptiResult (*enable_callback)(std::uint32_t enable, void* subscriber, std::uint32_t domain, std::uint32_t call) = nullptr;
    CuptiResult (*register_buffers)(CuptiBufferRequest request, CuptiBufferComplete complete) = nullptr;
    CuptiResult (*register_clock)(CuptiClock clock) = nullptr;  ///< null before 12.0
    CuptiResult (*activity_enable)(std::uint32_t kind) = nullptr;
    CuptiResult (*activity_disable)(std::uint32_t kind) = nullptr;
    CuptiResult (*activity_flush)(std::uint32_t flags) = nullptr;
    CuptiResult (*next_record)(std::uint8_t* buffer, std::size_t valid, std::uint8_t** record) = nullptr;
    CuptiResult (*dropped_records)(void* context, std::uint32_t stream, std::size_t* dropped) = nullptr;
    CuptiResult (*timestamp)(std::uint64_t* time) = nullptr;
    CuptiResult (*stream_number)(void* context, void* stream, std::uint8_t per_thread, std::uint32_t* number) = nullptr;
    CuptiResult (*finalize)() = nullptr;
    std::uint32_t version = 0;  ///< as cuptiGetVersion says
    std::uint32_t driver = 0;   ///< as cuDriverGetVersion says: 13000 for 13.0; 0: unknown
    /// cuFuncGetParamInfo and cuKernelGetParamInfo of the driver (from 12.4 on, else null): place and size of one parameter. What
    /// a launch is given can be a handle of either kind; the driver refuses the wrong one.
    int (*function_parameter)(void* function, std::size_t index, std::size_t* offset, std::size_t* size) = nullptr;
    int (*kernel_parameter)(void* kernel, std::size_t index, std::size_t* offset, std::size_t* size) = nullptr;
};

/// Finds CUPTI and fills `cupti`; false when there is none with all that is needed. MILLRACE_CUPTI names a library to use
/// instead.
bool load_cupti(Cupti& cupti);

}  // namespace millrace::probe
