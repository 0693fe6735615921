#pragma once
// One look at the machine, as plain data. What could not be read is absent; nothing is ever 0 for want of a reading.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace::sense {

/// Why a GPU runs below its clocks; the bits of GpuReading::throttle. Idling and clocks set by the user are no throttling and are
/// not among them.
enum Throttle : std::uint32_t {
    kThrottlePowerCap = 1u << 0,   ///< software power cap
    kThrottleThermal = 1u << 1,    ///< software or hardware thermal slow-down
    kThrottleHardware = 1u << 2,   ///< hardware slow-down (power brake included)
    kThrottleSyncBoost = 1u << 3,  ///< held back by another GPU of its group
};
/// "power cap, thermal"; empty when none is set.
std::string throttle_text(std::uint32_t bits);

/// What does not change while a GPU is watched.
struct GpuFacts {
    int index = 0;         ///< as CUDA numbers the visible GPUs
    int driver_index = 0;  ///< as the driver (nvidia-smi) numbers them
    std::string name, uuid, pci_bus;
    std::optional<double> memory_total_bytes, power_limit_watts;
    std::optional<double> link_bytes_per_second;  ///< from the host to the GPU, what the link carries at most
    bool has_activity = false;                    ///< GPM: sm_active and its neighbours will be there
};

/// Percentages are 0..100. Rates and activities are over the time since the reading before, so the first one lacks them.
struct GpuReading {
    bool lost = false;                         ///< fell off the bus; everything below is absent from then on
    std::optional<double> utilization;         ///< % of the time in which some kernel was resident
    std::optional<double> memory_utilization;  ///< % of the time in which memory was read or written
    std::optional<double> memory_used_bytes, memory_total_bytes;
    std::optional<double> process_memory_bytes;  ///< of the watched process tree
    std::optional<double> power_watts, power_limit_watts;
    bool power_implausible = false;  ///< the driver's figure was beyond twice the limit; power_watts is absent then
    std::optional<double> implausible_power_watts;  ///< that figure
    std::optional<double> energy_joules;            ///< counter, since the driver was loaded
    std::optional<double> sm_clock_mhz, memory_clock_mhz, temperature_celsius;
    std::optional<std::uint32_t> throttle;                                          ///< bits of Throttle
    std::optional<double> pcie_read_bytes_per_second, pcie_write_bytes_per_second;  ///< seen from the GPU
    std::optional<double> link_bytes_per_second;                                    ///< does not change: see GpuFacts
    // GPM: % of the time, averaged over the chip
    std::optional<double> graphics_active, sm_active, sm_occupancy, tensor_active, dram_active, fp32_active, fp16_active;
};

struct CpuReading {
    std::optional<double> utilization;         ///< % over all cores this process may use
    std::vector<std::optional<double>> cores;  ///< % of each
    std::optional<double> load_1m, load_5m, load_15m;
    std::optional<double> limit_cores;          ///< cgroup quota in cores
    std::optional<double> throttled_percent;    ///< % of the time in which the cgroup's quota held us back
    std::optional<double> process_utilization;  ///< of the watched tree, % of one core (may exceed 100)
    std::optional<double> pressure_percent;     ///< PSI "some", ten seconds
};

struct MemoryReading {
    std::optional<double> total_bytes, used_bytes, available_bytes;  ///< the smaller of machine and cgroup limit
    std::optional<double> page_cache_bytes, swap_total_bytes, swap_used_bytes;
    std::optional<double> limit_bytes;    ///< cgroup, when there is one
    std::optional<double> process_bytes;  ///< resident, of the watched tree
};

struct DiskReading {
    // of the watched tree, per second
    std::optional<double> read_bytes_per_second;  ///< fetched from storage
    std::optional<double> write_bytes_per_second;
    std::optional<double> request_bytes_per_second;  ///< asked for by read calls, page cache included
    std::optional<double> cached_percent;            ///< share of those that storage did not have to deliver
};

struct ProcessReading {
    std::optional<double> count, threads;  ///< of the watched tree
};

struct Sample {
    std::chrono::nanoseconds time{};  ///< monotonic, when the reading began
    double wall = 0;                  ///< seconds since 1970
    std::uint64_t sequence = 0;       ///< number of the tick on the schedule; gaps are missed samples
    std::chrono::nanoseconds late{};  ///< behind the schedule
    std::chrono::nanoseconds took{};  ///< to read everything
    std::vector<GpuReading> gpus;     ///< as many as Machine::facts().gpus, in that order
    CpuReading cpu;
    MemoryReading memory;
    DiskReading disk;
    ProcessReading process;
};

/// How fast the link between host and GPU is by its specification: bytes/s in one direction after line coding, before the headers
/// of packets: 63 GB/s for generation 5 with 16 lanes. Absent for generations and widths that do not exist.
std::optional<double> pcie_bytes_per_second(unsigned generation, unsigned lanes);

}  // namespace millrace::sense
