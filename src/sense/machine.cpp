#include "sense/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/split.h"
#include "base/units.h"
#include "sense/gpu.h"
#include "sense/nvml_library.h"
#include "sense/proc_file.h"
#include "sense/proc_readings.h"
#include "sense/process_tree.h"

namespace millrace::sense {
namespace {

std::optional<int> by_beginning(std::string_view uuid, const std::vector<std::string>& uuids) {
    std::optional<int> found;
    for (std::size_t i = 0; i < uuids.size(); ++i) {
        if (!uuids[i].starts_with(uuid)) continue;
        if (found) return std::nullopt;  // not unique
        found = static_cast<int>(i);
    }
    return found;
}

std::string host_name(const std::string& proc) {
    std::string buffer;
    const auto text = ProcFile(proc + "/sys/kernel/hostname", false).read(buffer);
    return text ? std::string(text->substr(0, text->find('\n'))) : std::string{};
}

/// The driver's GPUs in its order. One that cannot be opened has no handle and no UUID, and keeps its number.
struct DriverDevice {
    nvml::Device handle = nullptr;
    std::string uuid;
};

std::vector<DriverDevice> driver_devices(const nvml::Api& api) {
    unsigned count = 0;
    if (api.count(&count) != nvml::kSuccess) return {};
    std::vector<DriverDevice> devices(std::min(count, 1024u));
    for (unsigned i = 0; i < devices.size(); ++i) {
        char uuid[128] = {};
        if (api.by_index(i, &devices[i].handle) != nvml::kSuccess) devices[i].handle = nullptr;
        if (devices[i].handle != nullptr && api.uuid != nullptr &&
            api.uuid(devices[i].handle, uuid, sizeof uuid - 1) == nvml::kSuccess)
            devices[i].uuid = uuid;
    }
    return devices;
}

VisibleDevices choose_devices(const MachineOptions& options, const nvml::Api& api, const std::vector<DriverDevice>& devices) {
    VisibleDevices chosen;
    if (!options.visible_devices_set) {
        for (std::size_t i = 0; i < devices.size(); ++i) chosen.devices.push_back(static_cast<int>(i));
        return chosen;
    }
    if (options.visible_devices.empty()) return {.devices = {}, .note = "CUDA_VISIBLE_DEVICES is empty, which hides every GPU"};
    std::vector<std::string> uuids;
    uuids.reserve(devices.size());
    for (const DriverDevice& device : devices) uuids.push_back(device.uuid);
    return visible_devices(options.visible_devices, uuids, [&](const std::string& mig_uuid) -> std::optional<int> {
        nvml::Device instance = nullptr, parent = nullptr;
        if (api.by_uuid == nullptr || api.parent_of_mig == nullptr) return std::nullopt;
        if (api.by_uuid(mig_uuid.c_str(), &instance) != nvml::kSuccess) return std::nullopt;
        if (api.parent_of_mig(instance, &parent) != nvml::kSuccess) return std::nullopt;
        for (std::size_t i = 0; i < devices.size(); ++i)
            if (devices[i].handle == parent) return static_cast<int>(i);
        return std::nullopt;
    });
}

class Machine final : public Source {
public:
    explicit Machine(const MachineOptions& options)
        : cores_(usable_cores(options.proc, options.sys)),
          cpu_(options.proc, options.sys, cores_),
          memory_(options.proc, options.sys),
          tree_(options.proc, options.root != 0 ? options.root : ::getpid()) {
        facts_.cpu_name = processor_name(options.proc);
        facts_.cores = static_cast<int>(cores_.size());
        facts_.core_numbers = cores_;
        facts_.host = host_name(options.proc);
        open_gpus(options);
    }

    [[nodiscard]] const MachineFacts& facts() const override { return facts_; }

    void read(std::chrono::nanoseconds now, Sample& sample) noexcept override {
        const ProcessTree::Reading tree = tree_.read(now);
        cpu_.read(now, sample.cpu);
        memory_.read(sample.memory);
        sample.process = tree.process;
        sample.disk = tree.disk;
        sample.cpu.process_utilization = tree.utilization;
        sample.memory.process_bytes = tree.resident_bytes;
        sample.gpus.resize(gpus_.size());
        for (std::size_t i = 0; i < gpus_.size(); ++i) gpus_[i].read(now, tree_.members(), gpus_.size(), sample.gpus[i]);
    }

private:
    void open_gpus(const MachineOptions& options) {
        base::Result<nvml::Library> library = nvml::Library::open(options.nvml);
        if (!library) {
            facts_.no_gpu = library.error().message;
            return;
        }
        library_.emplace(std::move(library).value());
        const nvml::Api& api = library_->api();
        char driver[128] = {};
        if (api.driver_version != nullptr && api.driver_version(driver, sizeof driver - 1) == nvml::kSuccess)
            facts_.driver = driver;
        const std::vector<DriverDevice> devices = driver_devices(api);
        const VisibleDevices visible = choose_devices(options, api, devices);
        facts_.gpu_note = visible.note;
        for (const int number : visible.devices) {
            const DriverDevice& device = devices[static_cast<std::size_t>(number)];
            if (device.handle == nullptr) {
                facts_.gpu_note += (facts_.gpu_note.empty() ? "GPU " : "; GPU ") + std::to_string(number) + " cannot be opened";
                continue;
            }
            gpus_.emplace_back(api, device.handle, static_cast<int>(gpus_.size()), number);
            facts_.gpus.push_back(gpus_.back().facts());
        }
        if (!gpus_.empty()) return;
        facts_.no_gpu = !facts_.gpu_note.empty() ? facts_.gpu_note : "the driver knows no GPU";
    }

    MachineFacts facts_;
    std::optional<nvml::Library> library_;  // outlives the GPUs
    std::vector<Gpu> gpus_;
    std::vector<int> cores_;
    ProcCpu cpu_;
    ProcMemory memory_;
    ProcessTree tree_;
};

}  // namespace

VisibleDevices visible_devices(std::string_view list, const std::vector<std::string>& uuids,
                               const std::function<std::optional<int>(const std::string&)>& parent_of_mig) {
    VisibleDevices visible;
    std::vector<std::string> entries;
    for (const std::string& part : base::split(list, ',')) {
        const std::string entry(base::trimmed(part));
        std::optional<int> device;
        const bool is_mig = entry.starts_with("MIG-");
        if (const auto number = to_count(entry); number && *number < uuids.size())
            device = static_cast<int>(*number);
        else if (entry.starts_with("GPU-"))
            device = by_beginning(entry, uuids);
        else if (is_mig && entry.starts_with("MIG-GPU-"))  // "MIG-<UUID of the GPU>/<instance>/<instance>", before driver 470
            device = by_beginning(entry.substr(4, entry.find('/') - 4), uuids);
        else if (is_mig)
            device = parent_of_mig(entry);
        if (!device) {
            visible.note = entry.empty() ? "CUDA_VISIBLE_DEVICES has an empty entry"
                                         : "CUDA_VISIBLE_DEVICES names no GPU with '" + entry + "'";
            if (!visible.devices.empty()) visible.note += "; what follows it is hidden";
            return visible;
        }
        // Several instances of one GPU are several CUDA devices, but one GPU to watch.
        const bool again = std::find(visible.devices.begin(), visible.devices.end(), *device) != visible.devices.end();
        if ((again && !is_mig) || std::find(entries.begin(), entries.end(), entry) != entries.end())
            return {.devices = {}, .note = "CUDA_VISIBLE_DEVICES names '" + entry + "' twice, which hides every GPU"};
        if (!again) visible.devices.push_back(*device);
        entries.push_back(entry);
    }
    return visible;
}

MachineOptions machine_options() {
    MachineOptions options;
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
        options.visible_devices = visible;
        options.visible_devices_set = true;
    }
    if (const char* library = std::getenv("MILLRACE_NVML")) options.nvml = library;
    return options;
}

std::unique_ptr<Source> open_machine(const MachineOptions& options) { return std::make_unique<Machine>(options); }

}  // namespace millrace::sense
