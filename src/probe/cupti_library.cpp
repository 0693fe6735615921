#include "probe/cupti_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/imports.h"
#include "probe/log.h"

namespace millrace::probe {
namespace {

void* installed_library(std::uint32_t driver_major) {
    static const char* const kPatterns[] = {
        "libcupti.so.%u",
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.%u",
        "/usr/local/cuda/lib64/libcupti.so.%u",
        "/usr/local/cuda-%u/extras/CUPTI/lib64/libcupti.so",
        "/usr/local/cuda-%u/lib64/libcupti.so",
        "/usr/lib/x86_64-linux-gnu/libcupti.so.%u",
        "/usr/lib/aarch64-linux-gnu/libcupti.so.%u",
    };
    for (std::uint32_t major = driver_major; major >= 12; --major) {
        for (const char* pattern : kPatterns) {
            char path[256];
            ::snprintf(path, sizeof path, pattern, major);
            if (void* library = ::dlopen(path, RTLD_LAZY | RTLD_LOCAL)) {
                log_line("loaded %s", path);
                return library;
            }
        }
    }
    return nullptr;
}

template <class Function>
bool bind(void* library, const char* name, Function& function) {
    void* symbol = ::dlsym(library, name);
    static_assert(sizeof symbol == sizeof function);
    ::memcpy(&function, &symbol, sizeof symbol);
    return symbol != nullptr;
}

void bind_driver(Cupti& cupti) {
    void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) driver = loaded_library("libcuda.so");
    if (driver == nullptr) return;
    int (*version)(int*) = nullptr;
    int number = 0;
    if (bind(driver, "cuDriverGetVersion", version) && version(&number) == 0) cupti.driver = static_cast<std::uint32_t>(number);
    bind(driver, "cuFuncGetParamInfo", cupti.function_parameter);
    bind(driver, "cuKernelGetParamInfo", cupti.kernel_parameter);
}

}  // namespace

bool load_cupti(Cupti& cupti) {
    bind_driver(cupti);
    const char* given = ::getenv("MILLRACE_CUPTI");
    void* library = given != nullptr ? ::dlopen(given, RTLD_LAZY | RTLD_LOCAL) : loaded_library("libcupti.so");
    if (library == nullptr && given == nullptr) library = installed_library(cupti.driver >= 12000 ? cupti.driver / 1000 : 13);
    if (library == nullptr) return false;
    cupti.library = library;
    const bool complete = bind(library, "cuptiSubscribe", cupti.subscribe) &&
                          bind(library, "cuptiUnsubscribe", cupti.unsubscribe) &&
                          bind(library, "cuptiEnableCallback", cupti.enable_callback) &&
                          bind(library, "cuptiActivityRegisterCallbacks", cupti.register_buffers) &&
                          bind(library, "cuptiActivityEnable", cupti.activity_enable) &&
                          bind(library, "cuptiActivityDisable", cupti.activity_disable) &&
                          bind(library, "cuptiActivityFlushAll", cupti.activity_flush) &&
                          bind(library, "cuptiActivityGetNextRecord", cupti.next_record) &&
                          bind(library, "cuptiActivityGetNumDroppedRecords", cupti.dropped_records) &&
                          bind(library, "cuptiGetTimestamp", cupti.timestamp);
    bind(library, "cuptiSubscribe_v2", cupti.subscribe_by_name);
    bind(library, "cuptiActivityRegisterTimestampCallback", cupti.register_clock);
    bind(library, "cuptiGetStreamIdEx", cupti.stream_number);
    bind(library, "cuptiFinalize", cupti.finalize);
    CuptiResult (*version)(std::uint32_t*) = nullptr;
    if (bind(library, "cuptiGetVersion", version)) version(&cupti.version);
    return complete;
}

}  // namespace millrace::probe
