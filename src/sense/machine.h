#pragma once
// Reads the machine: NVML (loaded at run time, absent on machines without a GPU) and /proc.
//
// CUDA_VISIBLE_DEVICES counts as CUDA understands it. Numbers are taken in the driver's order, that of the PCI bus. CUDA numbers
// that way only with CUDA_DEVICE_ORDER=PCI_BUS_ID; its own default puts the fastest GPU first, which cannot be found out through
// NVML. On machines whose GPUs are all alike the two orders agree; on others, name GPUs by UUID or set that variable.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sense/sample.h"

namespace millrace::sense {

/// What does not change while the machine is watched.
struct MachineFacts {
    std::vector<GpuFacts> gpus;  ///< those CUDA_VISIBLE_DEVICES leaves visible, in its order
    std::string no_gpu;          ///< why there are none: "no driver (libnvidia-ml.so.1 not found)"; empty when there are some
    std::string gpu_note;        ///< what of CUDA_VISIBLE_DEVICES was not followed; mostly empty
    std::string driver;          ///< "580.159.04"; empty without
    std::string cpu_name;
    int cores = 0;                  ///< this process may use
    std::vector<int> core_numbers;  ///< those, as the system numbers them; the order of CpuReading::cores
    std::string host;
};

struct MachineOptions {
    std::string proc = "/proc", sys = "/sys";  ///< tests hand in recorded trees
    std::string nvml = "libnvidia-ml.so.1";    ///< tests hand in a mock; empty: do not look for GPUs
    /// Values of the environment; nothing is read from it here.
    std::string visible_devices;       ///< CUDA_VISIBLE_DEVICES
    bool visible_devices_set = false;  ///< set but empty hides all
    pid_t root = 0;                    ///< process whose tree is watched; 0: this process
};

/// Anything that can be sampled: the machine, or a fake in tests.
class Source {
public:
    virtual ~Source() = default;
    [[nodiscard]] virtual const MachineFacts& facts() const = 0;
    /// Fills everything of `sample` but time, wall, sequence, late and took. `now` is the sample's time. Never throws, never
    /// blocks on anything but the kernel and the driver.
    virtual void read(std::chrono::nanoseconds now, Sample& sample) noexcept = 0;
};

/// Reads the environment (CUDA_VISIBLE_DEVICES, and MILLRACE_NVML: another library in NVML's place, empty for none) into the
/// options of the real machine.
MachineOptions machine_options();
/// Never fails: what is missing is absent from the readings and explained in the facts.
std::unique_ptr<Source> open_machine(const MachineOptions& options);

struct VisibleDevices {
    std::vector<int> devices;  ///< the driver's numbers, in CUDA's order
    std::string note;          ///< what ended the list early or hid everything; empty when nothing did
};

/// `uuids` of the machine's GPUs in the driver's order. Entries are numbers, UUIDs or unique beginnings of one ("GPU-7089"), or
/// MIG instances, for which `parent_of_mig` gives the GPU they are part of. The first entry that names no GPU ends the list; an
/// entry given twice hides everything. A list without entries hides everything.
VisibleDevices visible_devices(std::string_view list, const std::vector<std::string>& uuids,
                               const std::function<std::optional<int>(const std::string& mig_uuid)>& parent_of_mig);

}  // namespace millrace::sense
