#include "sense/machine.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "sense/proc_cpu.h"
#include "sense/proc_memory.h"
#include "sense/process_tree.h"

namespace millrace::sense {

namespace {

std::string host_name(const std::string& proc) {
    std::string buffer;
    const auto text = ProcFile(proc + "/sys/kernel/hostname", false).read(buffer);
    return text ? std::string(text->substr(0, text->find('\n'))) : std::string{};
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
        facts_.no_gpu = "GPUs are not looked for";
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
        sample.gpus.clear();
    }

private:
    MachineFacts facts_;
    std::vector<int> cores_;
    ProcCpu cpu_;
    ProcMemory memory_;
    ProcessTree tree_;
};

}  // namespace

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
