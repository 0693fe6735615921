// A stand-in for libnvidia-ml.so.1, so that everything above NVML can be tested on machines without a GPU: load it in place of
// the driver's library (MachineOptions::nvml, or MILLRACE_NVML for the whole program). The environment says how it behaves; it is
// read when the library is initialised.
//
//   MOCK_NVML_GPUS=2                  how many GPUs there are (1)
//   MOCK_NVML_INIT=9                  what nvmlInit answers (0)
//   MOCK_NVML_INIT_MS=1000            how long nvmlInit takes (0)
//   MOCK_NVML_FAIL=NAME=3,NAME=10     calls that answer with a code; NAME@1=3 on GPU 1 only; a name may be an old version's
//   MOCK_NVML_LOST=1:3:15             GPU 1 answers every call with 15 after its third reading
//   MOCK_NVML_POWER=590000            power in mW from the second reading on (progresses otherwise)
//   MOCK_NVML_GPM=0                   no activity counters (1)
//   MOCK_NVML_GPM_FAIL=5=3            activity metric 5 answers with 3
//   MOCK_NVML_PCIE=4:1:16:8           PCIe generation at most and now, lanes at most and now (5:1:16:16)
//   MOCK_NVML_C2C=10:44712            C2C links and the MB/s of each; the last one is down (none)
//   MOCK_NVML_PROCESSES=self:1048576  processes on every GPU, by number or "self"
//
// GPU g at its reading n (counted from 1 by calls for the utilisation) shows: utilisation (40 + 7 n) mod 100 %, memory 1 GiB (n +
// g) of 80, power 300 + n W of 700, temperature 45 + n, SM clock 1980 - 15 n, energy 300 n J, SM activity 10 n %.
//
// Built a second time with MOCK_NVML_OLD it lacks everything that drivers of 2018 lacked.

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "sense/nvml_library.h"

namespace nvml = millrace::sense::nvml;
using nvml::Code;
using nvml::Device;

struct millrace::sense::nvml::DeviceTag {
    int index = 0;
    int readings = 0;
    bool is_mig = false;
};
struct millrace::sense::nvml::GpmSampleTag {
    int reading = 0;
};

namespace {

struct State {
    int references = 0;
    std::vector<nvml::DeviceTag> devices;
    nvml::DeviceTag instance;  // the one MIG instance, part of the last GPU
    std::map<std::string, int> fail;
    std::map<std::string, int> gpm_fail;
    int lost_gpu = -1, lost_after = 0, lost_code = nvml::kGpuIsLost;
    long power = -1;
    bool gpm = true;
    unsigned pcie[4] = {5, 1, 16, 16};
    unsigned c2c_links = 0, c2c_megabytes = 0;
    std::vector<nvml::ProcessV2> processes;
    std::map<std::string, unsigned> calls;
    std::set<nvml::GpmSample> samples;
};

State& state() {
    static State one;
    return one;
}

std::string variable(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

std::map<std::string, int> pairs(const std::string& text) {
    std::map<std::string, int> found;
    std::istringstream stream(text);
    for (std::string entry; std::getline(stream, entry, ',');)
        if (const auto sign = entry.find('='); sign != std::string::npos)
            found[entry.substr(0, sign)] = std::atoi(entry.c_str() + sign + 1);
    return found;
}

void configure() {
    State& now = state();
    now.calls.clear();
    now.devices.assign(static_cast<std::size_t>(std::atoi(variable("MOCK_NVML_GPUS", "1").c_str())), {});
    for (std::size_t i = 0; i < now.devices.size(); ++i) now.devices[i].index = static_cast<int>(i);
    now.instance = {.index = static_cast<int>(now.devices.size()) - 1, .readings = 0, .is_mig = true};
    now.fail = pairs(variable("MOCK_NVML_FAIL", ""));
    now.gpm_fail = pairs(variable("MOCK_NVML_GPM_FAIL", ""));
    now.lost_gpu = -1;
    std::sscanf(variable("MOCK_NVML_LOST", "").c_str(), "%d:%d:%d", &now.lost_gpu, &now.lost_after, &now.lost_code);
    now.power = std::atol(variable("MOCK_NVML_POWER", "-1").c_str());
    now.gpm = variable("MOCK_NVML_GPM", "1") != "0";
    std::sscanf(variable("MOCK_NVML_PCIE", "5:1:16:16").c_str(), "%u:%u:%u:%u", &now.pcie[0], &now.pcie[1], &now.pcie[2],
                &now.pcie[3]);
    now.c2c_links = now.c2c_megabytes = 0;
    std::sscanf(variable("MOCK_NVML_C2C", "").c_str(), "%u:%u", &now.c2c_links, &now.c2c_megabytes);
    now.processes.clear();
    std::istringstream stream(variable("MOCK_NVML_PROCESSES", ""));
    for (std::string entry; std::getline(stream, entry, ',');) {
        const auto sign = entry.find(':');
        if (sign == std::string::npos) continue;
        const std::string pid = entry.substr(0, sign);
        now.processes.push_back({static_cast<unsigned>(pid == "self" ? ::getpid() : std::atoi(pid.c_str())),
                                 std::strtoull(entry.c_str() + sign + 1, nullptr, 10), ~0u, ~0u});
    }
}

/// What stands before every call: counting, and the failures asked for.
Code enter(const char* name, Device device = nullptr) {
    State& now = state();
    ++now.calls[name];
    if (now.references == 0) return static_cast<Code>(1);
    if (device != nullptr) {
        ++now.calls[std::string(name) + "@" + std::to_string(device->index)];
        if (device->index == now.lost_gpu && device->readings >= now.lost_after) return static_cast<Code>(now.lost_code);
        if (const auto at = now.fail.find(std::string(name) + "@" + std::to_string(device->index)); at != now.fail.end())
            return static_cast<Code>(at->second);
    }
    const auto at = now.fail.find(name);
    return at != now.fail.end() ? static_cast<Code>(at->second) : nvml::kSuccess;
}

Code copy_text(const std::string& text, char* into, unsigned size) {
    if (text.size() >= size) return nvml::kInsufficientSize;
    std::memcpy(into, text.c_str(), text.size() + 1);
    return nvml::kSuccess;
}

constexpr unsigned long long kGiB = 1ULL << 30;

template <class Entry>
Code list_processes(unsigned* count, Entry* entries) {
    const auto there = static_cast<unsigned>(state().processes.size());
    const unsigned room = *count;
    *count = there;
    if (room < there) return nvml::kInsufficientSize;
    for (unsigned i = 0; i < there; ++i) {
        entries[i].pid = state().processes[i].pid;
        entries[i].bytes = state().processes[i].bytes;
    }
    return nvml::kSuccess;
}

}  // namespace

#define ENTER(device) \
    if (const Code code = enter(__func__, device); code != nvml::kSuccess) return code

extern "C" {

/// How often a call was made, "NAME" or "NAME@<gpu>", since the library was initialised. For tests.
unsigned mockNvmlCalls(const char* name) { return state().calls[name]; }
/// GPM samples allocated and not freed. For tests.
unsigned mockNvmlLiveSamples() { return static_cast<unsigned>(state().samples.size()); }

Code nvmlInit_v2() {
    // As the driver's library may: something is left to do when this thread ends.
    static const pthread_key_t key = [] {
        pthread_key_t made{};
        pthread_key_create(&made, [](void* count) { ++*static_cast<int*>(count); });
        return made;
    }();
    static int ended = 0;
    pthread_setspecific(key, &ended);
    ++state().calls["nvmlInit_v2"];
    ::usleep(1000u * static_cast<unsigned>(std::atoi(variable("MOCK_NVML_INIT_MS", "0").c_str())));
    const int code = std::atoi(variable("MOCK_NVML_INIT", "0").c_str());
    if (code != 0) return static_cast<Code>(code);
    if (state().references++ == 0) configure();
    return nvml::kSuccess;
}
Code nvmlShutdown() {
    ENTER(nullptr);
    --state().references;
    return nvml::kSuccess;
}
const char* nvmlErrorString(Code code) { return code == 9 ? "Driver Not Loaded" : "Some Error"; }
Code nvmlSystemGetDriverVersion(char* into, unsigned size) {
    ENTER(nullptr);
    return copy_text("580.00.mock", into, size);
}
Code nvmlDeviceGetCount_v2(unsigned* count) {
    ENTER(nullptr);
    *count = static_cast<unsigned>(state().devices.size());
    return nvml::kSuccess;
}
Code nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
    if (index >= state().devices.size()) return static_cast<Code>(2);
    ENTER(&state().devices[index]);
    *device = &state().devices[index];
    return nvml::kSuccess;
}
Code nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
    ENTER(nullptr);
    if (std::strcmp(uuid, "MIG-11111111-2222-3333-4444-555555555555") != 0) return nvml::kNotFound;
    *device = &state().instance;
    return nvml::kSuccess;
}
Code nvmlDeviceGetName(Device device, char* into, unsigned size) {
    ENTER(device);
    return copy_text("Mock GPU " + std::to_string(device->index), into, size);
}
Code nvmlDeviceGetUUID(Device device, char* into, unsigned size) {
    ENTER(device);
    return copy_text("GPU-" + std::to_string(7089 + 1000 * (device->index / 2)) + "000" + std::to_string(device->index) +
                         "-0000-4000-8000-000000000000",
                     into, size);
}
Code nvmlDeviceGetPciInfo_v3(Device device, nvml::Pci* pci) {
    ENTER(device);
    *pci = {};
    std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", static_cast<unsigned>(device->index + 6) & 0xffu);
    return nvml::kSuccess;
}
Code nvmlDeviceGetUtilizationRates(Device device, nvml::Utilization* into) {
    ++device->readings;
    ENTER(device);
    *into = {static_cast<unsigned>(40 + 7 * device->readings) % 100, 25};
    return nvml::kSuccess;
}
Code nvmlDeviceGetMemoryInfo(Device device, nvml::MemoryV1* into) {
    ENTER(device);
    const unsigned long long used = kGiB * static_cast<unsigned>(device->readings + device->index);
    *into = {80 * kGiB, 79 * kGiB - used, used + kGiB};  // one GiB is reserved
    return nvml::kSuccess;
}
Code nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, nvml::ProcessV1* entries) {
    ENTER(device);
    return list_processes(count, entries);
}
Code nvmlDeviceGetPowerUsage(Device device, unsigned* into) {
    ENTER(device);
    *into =
        state().power >= 0 && device->readings > 1 ? static_cast<unsigned>(state().power) : 300'000u + 1000u * device->readings;
    return nvml::kSuccess;
}
Code nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* into) {
    ENTER(device);
    *into = 700'000;
    return nvml::kSuccess;
}
Code nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* into) {
    ENTER(device);
    *into = 300'000ULL * static_cast<unsigned>(device->readings);
    return nvml::kSuccess;
}
Code nvmlDeviceGetClockInfo(Device device, nvml::Clock clock, unsigned* into) {
    ENTER(device);
    *into = clock == nvml::kSmClock ? 1980u - 15u * device->readings : 2619u;
    return nvml::kSuccess;
}
Code nvmlDeviceGetMaxClockInfo(Device device, nvml::Clock, unsigned* into) {
    ENTER(device);
    *into = 1980;
    return nvml::kSuccess;
}
Code nvmlDeviceGetTemperature(Device device, int, unsigned* into) {
    ENTER(device);
    *into = 45u + device->readings;
    return nvml::kSuccess;
}
Code nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* into) {
    ENTER(device);
    *into = nvml::kReasonPowerCap | 0x1;  // idle is no throttling
    return nvml::kSuccess;
}
Code nvmlDeviceGetPcieThroughput(Device device, nvml::PcieCounter counter, unsigned* into) {
    ENTER(device);
    *into = counter == nvml::kPcieTransmit ? 2000 : 5000;
    return nvml::kSuccess;
}
Code nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* into) {
    ENTER(device);
    *into = state().pcie[0];
    return nvml::kSuccess;
}
Code nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* into) {
    ENTER(device);
    *into = state().pcie[1];
    return nvml::kSuccess;
}
Code nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* into) {
    ENTER(device);
    *into = state().pcie[2];
    return nvml::kSuccess;
}
Code nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* into) {
    ENTER(device);
    *into = state().pcie[3];
    return nvml::kSuccess;
}

#ifndef MOCK_NVML_OLD
Code nvmlDeviceGetFieldValues(Device device, int count, nvml::Field* fields) {
    ENTER(device);
    const State& now = state();
    for (int i = 0; i < count; ++i) {
        nvml::Field& field = fields[i];
        field.code = now.c2c_links > 0 ? nvml::kSuccess : nvml::kNotSupported;
        if (field.id == nvml::kC2cLinks) field.value.number = now.c2c_links;
        if (field.id == nvml::kC2cLinkActive) field.value.number = field.scope + 1 < now.c2c_links ? 1 : 0;
        if (field.id == nvml::kC2cLinkMegabytes) field.value.number = now.c2c_megabytes;
    }
    return nvml::kSuccess;
}
Code nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device instance, Device* parent) {
    ENTER(nullptr);
    if (!instance->is_mig || instance->index < 0) return static_cast<Code>(2);
    *parent = &state().devices[static_cast<std::size_t>(instance->index)];
    return nvml::kSuccess;
}
Code nvmlDeviceGetMemoryInfo_v2(Device device, nvml::MemoryV2* into) {
    ENTER(device);
    if (into->version != nvml::MemoryV2::kVersion) return static_cast<Code>(25);
    const unsigned long long used = kGiB * static_cast<unsigned>(device->readings + device->index);
    *into = {into->version, 80 * kGiB, kGiB, 79 * kGiB - used, used};
    return nvml::kSuccess;
}
Code nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, nvml::ProcessV2* entries) {
    ENTER(device);
    return list_processes(count, entries);
}
Code nvmlDeviceGetTemperatureV(Device device, nvml::TemperatureV1* into) {
    ENTER(device);
    if (into->version != nvml::TemperatureV1::kVersion) return static_cast<Code>(25);
    into->celsius = 45 + device->readings;
    return nvml::kSuccess;
}
Code nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* into) {
    ENTER(device);
    *into = nvml::kReasonHardwareThermal | nvml::kReasonHardwareSlowdown;
    return nvml::kSuccess;
}
Code nvmlGpmQueryDeviceSupport(Device device, nvml::GpmSupport* into) {
    ENTER(device);
    into->supported = state().gpm ? 1 : 0;
    return nvml::kSuccess;
}
Code nvmlGpmSampleAlloc(nvml::GpmSample* into) {
    ENTER(nullptr);
    *into = new nvml::GpmSampleTag;
    state().samples.insert(*into);
    return nvml::kSuccess;
}
Code nvmlGpmSampleFree(nvml::GpmSample sample) {
    ENTER(nullptr);
    if (state().samples.erase(sample) == 0) std::abort();  // freed twice or never allocated
    delete sample;
    return nvml::kSuccess;
}
Code nvmlGpmSampleGet(Device device, nvml::GpmSample sample) {
    ENTER(device);
    sample->reading = device->readings;
    return nvml::kSuccess;
}
Code nvmlGpmMetricsGet(nvml::GpmMetrics* request) {
    ENTER(nullptr);
    if (request->version != 1) return static_cast<Code>(25);
    if (request->later->reading <= request->earlier->reading) return static_cast<Code>(21);
    for (unsigned i = 0; i < request->count; ++i) {
        nvml::GpmMetric& metric = request->metrics[i];
        const auto fails = state().gpm_fail.find(std::to_string(metric.id));
        metric.code = fails != state().gpm_fail.end() ? fails->second : 0;
        metric.value = metric.id >= nvml::kPcieTransmitRate ? metric.id : 10.0 * request->later->reading + 0.01 * metric.id;
    }
    return nvml::kSuccess;
}
#endif

}  // extern "C"
