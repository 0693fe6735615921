#pragma once
// NVML, loaded at run time. Only what is used is declared here; layouts follow the driver's interface, whose versioned structures
// do not change within a version.

#include <string>

#include "base/result.h"

namespace millrace::sense::nvml {

/// Answer of every call. Others exist; these are the ones that mean something to us.
enum Code : int {
    kSuccess = 0,
    kNotSupported = 3,
    kNotFound = 6,
    kInsufficientSize = 7,
    kGpuIsLost = 15,
    kUnknown = 999,
};

struct DeviceTag;
using Device = DeviceTag*;
struct GpmSampleTag;
using GpmSample = GpmSampleTag*;

struct Utilization {
    unsigned gpu, memory;  ///< %
};

struct MemoryV1 {
    unsigned long long total, free, used;  ///< bytes; `used` holds what the driver reserves for itself
};

struct MemoryV2 {
    static constexpr unsigned kVersion = 40u | 2u << 24;  ///< size, then number
    unsigned version;
    unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);

struct ProcessV1 {
    unsigned pid;
    unsigned long long bytes;
};

struct ProcessV2 {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessV1) == 16 && sizeof(ProcessV2) == 24);
constexpr unsigned long long kBytesUnknown = ~0ULL;

struct Pci {
    char short_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};
static_assert(sizeof(Pci) == 68);

struct TemperatureV1 {
    static constexpr unsigned kVersion = 12u | 1u << 24;
    unsigned version;
    int sensor;
    int celsius;
};
static_assert(sizeof(TemperatureV1) == 12);

/// One of many values that have a number instead of a function.
struct Field {
    unsigned id;
    unsigned scope;  ///< which link
    long long taken, latency;
    int type;
    int code;  ///< of this field alone
    union {
        double real;
        unsigned number;
        unsigned long long large;
    } value;
};
static_assert(sizeof(Field) == 40);
enum FieldId : unsigned { kC2cLinks = 170, kC2cLinkActive = 171, kC2cLinkMegabytes = 172 /* per second */ };

struct GpmMetric {
    unsigned id;
    int code;  ///< of this metric alone
    double value;
    const char* names[3];
};
static_assert(sizeof(GpmMetric) == 40);

struct GpmMetrics {
    unsigned version;  ///< 1
    unsigned count;
    GpmSample earlier, later;
    GpmMetric metrics[512];  ///< drivers differ in how many they declare; more than any of them
};

struct GpmSupport {
    unsigned version;  ///< 1
    unsigned supported;
};

enum Clock : int { kSmClock = 1, kMemoryClock = 2 };
enum PcieCounter : int { kPcieTransmit = 0, kPcieReceive = 1 };
constexpr int kDieSensor = 0;

/// Why clocks are low, as the driver says it.
enum Reason : unsigned long long {
    kReasonPowerCap = 0x4,
    kReasonHardwareSlowdown = 0x8,
    kReasonSyncBoost = 0x10,
    kReasonSoftwareThermal = 0x20,
    kReasonHardwareThermal = 0x40,
    kReasonPowerBrake = 0x80,
};

enum Metric : unsigned {
    kGraphicsActive = 1,
    kSmActive = 2,
    kSmOccupancy = 3,
    kTensorActive = 5,
    kDramActive = 10,
    kFp32Active = 12,
    kFp16Active = 13,
    kPcieTransmitRate = 20,  ///< MiB/s
    kPcieReceiveRate = 21,
};

/// The functions; null where the library lacks one. Where a function has several versions, each has its own entry and the caller
/// takes the newest that answers.
struct Api {
    Code (*init)();
    Code (*shutdown)();
    const char* (*error_text)(Code);
    Code (*driver_version)(char*, unsigned);
    Code (*count)(unsigned*);
    Code (*by_index)(unsigned, Device*);
    Code (*by_uuid)(const char*, Device*);
    Code (*parent_of_mig)(Device, Device*);
    Code (*name)(Device, char*, unsigned);
    Code (*uuid)(Device, char*, unsigned);
    Code (*pci)(Device, Pci*);
    Code (*utilization)(Device, Utilization*);
    Code (*memory_v2)(Device, MemoryV2*);
    Code (*memory_v1)(Device, MemoryV1*);
    Code (*processes_v3)(Device, unsigned*, ProcessV2*);
    Code (*processes_v2)(Device, unsigned*, ProcessV2*);
    Code (*processes_v1)(Device, unsigned*, ProcessV1*);
    Code (*power)(Device, unsigned*);             ///< mW
    Code (*power_limit)(Device, unsigned*);       ///< mW, the one enforced
    Code (*energy)(Device, unsigned long long*);  ///< mJ
    Code (*clock)(Device, Clock, unsigned*);      ///< MHz
    Code (*temperature_v1)(Device, TemperatureV1*);
    Code (*temperature)(Device, int, unsigned*);
    Code (*clock_reasons)(Device, unsigned long long*);
    Code (*throttle_reasons)(Device, unsigned long long*);    ///< the older name of the same
    Code (*pcie_throughput)(Device, PcieCounter, unsigned*);  ///< kB/s; blocks for 20 ms
    Code (*max_pcie_generation)(Device, unsigned*);           ///< that both the GPU and its slot have
    Code (*pcie_generation)(Device, unsigned*);               ///< now: links slow down when nothing moves
    Code (*max_pcie_width)(Device, unsigned*);
    Code (*pcie_width)(Device, unsigned*);
    Code (*fields)(Device, int, Field*);
    Code (*gpm_support)(Device, GpmSupport*);
    Code (*gpm_allocate)(GpmSample*);
    Code (*gpm_free)(GpmSample);
    Code (*gpm_sample)(Device, GpmSample);
    Code (*gpm_metrics)(GpmMetrics*);
};

/// The loaded and initialised library. Shut down and unloaded at the end of its life.
class Library {
public:
    /// The error says why there are no GPUs to be seen, in a few words.
    static base::Result<Library> open(const std::string& path);
    Library(Library&& other) noexcept;
    Library& operator=(Library&&) = delete;
    ~Library();

    [[nodiscard]] const Api& api() const { return api_; }
    [[nodiscard]] std::string error_text(Code code) const;

private:
    Library() = default;

    void* handle_ = nullptr;
    bool initialised_ = false;
    Api api_{};
};

}  // namespace millrace::sense::nvml
