#include "sense/nvml_library.h"

#include <dlfcn.h>

#include <initializer_list>
#include <mutex>
#include <utility>

namespace millrace::sense::nvml {
namespace {

/// The first of `names` that the library has.
template <class Function>
void bind(void* handle, Function& function, std::initializer_list<const char*> names) {
    function = nullptr;
    for (const char* name : names)
        if (void* symbol = ::dlsym(handle, name); symbol != nullptr && function == nullptr)
            function = reinterpret_cast<Function>(symbol);
}

void bind_all(void* handle, Api& api) {
    bind(handle, api.init, {"nvmlInit_v2", "nvmlInit"});
    bind(handle, api.shutdown, {"nvmlShutdown"});
    bind(handle, api.error_text, {"nvmlErrorString"});
    bind(handle, api.driver_version, {"nvmlSystemGetDriverVersion"});
    bind(handle, api.count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    bind(handle, api.by_index, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    bind(handle, api.by_uuid, {"nvmlDeviceGetHandleByUUID"});
    bind(handle, api.parent_of_mig, {"nvmlDeviceGetDeviceHandleFromMigDeviceHandle"});
    bind(handle, api.name, {"nvmlDeviceGetName"});
    bind(handle, api.uuid, {"nvmlDeviceGetUUID"});
    bind(handle, api.pci, {"nvmlDeviceGetPciInfo_v3"});  // older ones fill less of the structure
    bind(handle, api.utilization, {"nvmlDeviceGetUtilizationRates"});
    bind(handle, api.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    bind(handle, api.memory_v1, {"nvmlDeviceGetMemoryInfo"});
    bind(handle, api.processes_v3, {"nvmlDeviceGetComputeRunningProcesses_v3"});
    bind(handle, api.processes_v2, {"nvmlDeviceGetComputeRunningProcesses_v2"});
    bind(handle, api.processes_v1, {"nvmlDeviceGetComputeRunningProcesses"});
    bind(handle, api.power, {"nvmlDeviceGetPowerUsage"});
    bind(handle, api.power_limit, {"nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"});
    bind(handle, api.energy, {"nvmlDeviceGetTotalEnergyConsumption"});
    bind(handle, api.clock, {"nvmlDeviceGetClockInfo"});
    bind(handle, api.temperature_v1, {"nvmlDeviceGetTemperatureV"});
    bind(handle, api.temperature, {"nvmlDeviceGetTemperature"});
    bind(handle, api.clock_reasons, {"nvmlDeviceGetCurrentClocksEventReasons"});
    bind(handle, api.throttle_reasons, {"nvmlDeviceGetCurrentClocksThrottleReasons"});
    bind(handle, api.pcie_throughput, {"nvmlDeviceGetPcieThroughput"});
    bind(handle, api.max_pcie_generation, {"nvmlDeviceGetMaxPcieLinkGeneration"});
    bind(handle, api.pcie_generation, {"nvmlDeviceGetCurrPcieLinkGeneration"});
    bind(handle, api.max_pcie_width, {"nvmlDeviceGetMaxPcieLinkWidth"});
    bind(handle, api.pcie_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
    bind(handle, api.fields, {"nvmlDeviceGetFieldValues"});
    bind(handle, api.gpm_support, {"nvmlGpmQueryDeviceSupport"});
    bind(handle, api.gpm_allocate, {"nvmlGpmSampleAlloc"});
    bind(handle, api.gpm_free, {"nvmlGpmSampleFree"});
    bind(handle, api.gpm_sample, {"nvmlGpmSampleGet"});
    bind(handle, api.gpm_metrics, {"nvmlGpmMetricsGet"});
}

/// One thread at a time loads, starts, stops or unloads the driver's library: three trainings that began together in one process
/// crashed or hung on an H200 without it.
std::mutex& opening_or_closing() {
    static std::mutex mutex;
    return mutex;
}

}  // namespace

base::Result<Library> Library::open(const std::string& path) {
    if (path.empty()) return base::Error("GPUs are not looked for");
    Library library;  // before the lock, so that it is closed after its release
    const std::lock_guard lock(opening_or_closing());
    // It stays: a thread that used it may end later, and what is to be done then would be unloaded code.
    library.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library.handle_ == nullptr) return base::Error("no driver (" + path + " not found)");
    bind_all(library.handle_, library.api_);
    const Api& api = library.api_;
    if (api.init == nullptr || api.shutdown == nullptr || api.count == nullptr || api.by_index == nullptr)
        return base::Error(path + " is not an NVML library");
    const Code code = api.init();
    if (code != kSuccess) return base::Error("the driver does not answer (NVML: " + library.error_text(code) + ")");
    library.initialised_ = true;
    return library;
}

Library::Library(Library&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), initialised_(std::exchange(other.initialised_, false)), api_(other.api_) {}

Library::~Library() {
    if (handle_ == nullptr) return;
    const std::lock_guard lock(opening_or_closing());
    if (initialised_) api_.shutdown();
    ::dlclose(handle_);
}

std::string Library::error_text(Code code) const {
    const char* text = api_.error_text != nullptr ? api_.error_text(code) : nullptr;
    return text != nullptr ? text : "error " + std::to_string(static_cast<int>(code));
}

}  // namespace millrace::sense::nvml
