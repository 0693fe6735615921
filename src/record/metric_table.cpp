#include "record/metric_table.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <unordered_map>
#include <variant>

#include "base/result.h"

namespace millrace::record {
namespace {

using sense::CpuReading;
using sense::DiskReading;
using sense::GpuReading;
using sense::MemoryReading;
using sense::ProcessReading;
using sense::Sample;
using Value = std::optional<double>;

/// Where a sample holds the value. Rows of training bring theirs along; cores are a list.
using Access = std::variant<std::monostate, Value CpuReading::*, Value MemoryReading::*, Value DiskReading::*,
                            Value ProcessReading::*, Value GpuReading::*, Value (*)(const GpuReading&), Value (*)(const Sample&)>;

struct Entry {
    MetricInfo info;
    Access access;
};

constexpr auto kGauge = MetricKind::kGauge;
constexpr auto kCounter = MetricKind::kCounter;

/// Most metrics are gauges.
constexpr MetricInfo machine(std::string_view name, std::string_view unit, std::string_view meaning, MetricKind kind = kGauge) {
    return {name, unit, kind, MetricScope::kMachine, meaning};
}
constexpr MetricInfo gpu(std::string_view name, std::string_view unit, std::string_view meaning, MetricKind kind = kGauge) {
    return {name, unit, kind, MetricScope::kGpu, meaning};
}
constexpr Entry train(std::string_view name, std::string_view unit, std::string_view meaning) {
    return {{name, unit, kGauge, MetricScope::kTrain, meaning}, std::monostate{}};
}

Value seconds_of(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }
Value late(const Sample& sample) { return seconds_of(sample.late); }
Value took(const Sample& sample) { return seconds_of(sample.took); }
Value ticks(const Sample& sample) { return static_cast<double>(sample.sequence + 1); }
Value lost(const GpuReading& reading) { return reading.lost ? 1.0 : 0.0; }
Value throttle(const GpuReading& reading) {
    return reading.throttle ? Value(static_cast<double>(*reading.throttle)) : std::nullopt;
}

constexpr Entry kEntries[] = {
    {machine("cpu/utilization_percent", "percent", "Busy share of the cores this process may use, since the sample before."),
     &CpuReading::utilization},
    {machine("cpu/process_utilization_percent", "percent",
             "CPU time of the watched process tree as a share of one core; may exceed 100."),
     &CpuReading::process_utilization},
    {machine("cpu/load_1m", "", "Load average over one minute."), &CpuReading::load_1m},
    {machine("cpu/load_5m", "", "Load average over five minutes."), &CpuReading::load_5m},
    {machine("cpu/load_15m", "", "Load average over fifteen minutes."), &CpuReading::load_15m},
    {machine("cpu/limit_cores", "cores", "CPU quota of the control group."), &CpuReading::limit_cores},
    {machine("cpu/throttled_percent", "percent", "Share of the time in which the control group's CPU quota held processes back."),
     &CpuReading::throttled_percent},
    {machine("cpu/pressure_percent", "percent", "Share of the last ten seconds in which some task waited for a CPU."),
     &CpuReading::pressure_percent},
    {{"core/utilization_percent", "percent", kGauge, MetricScope::kCore, "Busy share of one core, since the sample before."},
     std::monostate{}},
    {machine("ram/total_bytes", "bytes", "Memory there is: the smaller of the machine's and the control group's limit."),
     &MemoryReading::total_bytes},
    {machine("ram/used_bytes", "bytes", "Memory in use, page cache left out."), &MemoryReading::used_bytes},
    {machine("ram/available_bytes", "bytes", "Memory that can be had without swapping."), &MemoryReading::available_bytes},
    {machine("ram/page_cache_bytes", "bytes", "Memory that holds copies of files."), &MemoryReading::page_cache_bytes},
    {machine("ram/limit_bytes", "bytes", "Memory limit of the control group."), &MemoryReading::limit_bytes},
    {machine("swap/total_bytes", "bytes", "Swap space there is."), &MemoryReading::swap_total_bytes},
    {machine("swap/used_bytes", "bytes", "Swap space in use."), &MemoryReading::swap_used_bytes},
    {machine("process/resident_bytes", "bytes", "Resident memory of the watched process tree."), &MemoryReading::process_bytes},
    {machine("process/processes", "", "Processes in the watched tree."), &ProcessReading::count},
    {machine("process/threads", "", "Threads in the watched tree."), &ProcessReading::threads},
    {machine("disk/read_bytes_per_second", "bytes/second", "Fetched from storage for the watched tree."),
     &DiskReading::read_bytes_per_second},
    {machine("disk/write_bytes_per_second", "bytes/second", "Sent to storage by the watched tree."),
     &DiskReading::write_bytes_per_second},
    {machine("disk/request_bytes_per_second", "bytes/second",
             "Asked for by read calls of the watched tree, page cache included."),
     &DiskReading::request_bytes_per_second},
    {machine("disk/cached_percent", "percent", "Share of the bytes asked for that storage did not have to deliver."),
     &DiskReading::cached_percent},
    {gpu("gpu/utilization_percent", "percent",
         "Share of the time in which some kernel was resident; says nothing about how full the chip was."),
     &GpuReading::utilization},
    {gpu("gpu/memory_utilization_percent", "percent", "Share of the time in which device memory was read or written."),
     &GpuReading::memory_utilization},
    {gpu("gpu/memory_used_bytes", "bytes", "Device memory in use by all processes."), &GpuReading::memory_used_bytes},
    {gpu("gpu/memory_total_bytes", "bytes", "Device memory there is."), &GpuReading::memory_total_bytes},
    {gpu("gpu/process_memory_bytes", "bytes", "Device memory of the watched process tree."), &GpuReading::process_memory_bytes},
    {gpu("gpu/power_watts", "watts", "Power drawn; absent when the driver's figure was implausible."), &GpuReading::power_watts},
    {gpu("gpu/power_limit_watts", "watts", "Power the GPU may draw."), &GpuReading::power_limit_watts},
    {gpu("gpu/implausible_power_watts", "watts",
         "Power the driver reported although it is beyond twice the limit; only then there."),
     &GpuReading::implausible_power_watts},
    {gpu("gpu/energy_joules", "joules", "Energy used since the driver was loaded.", kCounter), &GpuReading::energy_joules},
    {gpu("gpu/sm_clock_mhz", "megahertz", "Clock of the multiprocessors."), &GpuReading::sm_clock_mhz},
    {gpu("gpu/memory_clock_mhz", "megahertz", "Clock of the device memory."), &GpuReading::memory_clock_mhz},
    {gpu("gpu/temperature_celsius", "celsius", "Temperature of the chip."), &GpuReading::temperature_celsius},
    {gpu("gpu/throttle_reasons", "bits",
         "Why the GPU runs below its clocks, a sum: 1 power cap, 2 thermal, 4 hardware slow-down, 8 synchronised boost; 0 it "
         "does not."),
     &throttle},
    {gpu("gpu/pcie_read_bytes_per_second", "bytes/second", "Received by the GPU over PCIe."),
     &GpuReading::pcie_read_bytes_per_second},
    {gpu("gpu/pcie_write_bytes_per_second", "bytes/second", "Sent by the GPU over PCIe."),
     &GpuReading::pcie_write_bytes_per_second},
    {gpu("gpu/link_bytes_per_second", "bytes/second",
         "What the link from the host to the GPU carries at most: lanes times the rate of its PCIe generation, or its C2C "
         "links."),
     &GpuReading::link_bytes_per_second},
    {gpu("gpu/graphics_active_percent", "percent", "Share of the time in which the graphics or compute engine had work."),
     &GpuReading::graphics_active},
    {gpu("gpu/sm_active_percent", "percent", "Share of time and multiprocessors that had a warp: how busy the chip was."),
     &GpuReading::sm_active},
    {gpu("gpu/sm_occupancy_percent", "percent", "Warps resident on the multiprocessors as a share of what they can hold."),
     &GpuReading::sm_occupancy},
    {gpu("gpu/tensor_active_percent", "percent", "Share of the time in which the tensor cores worked."),
     &GpuReading::tensor_active},
    {gpu("gpu/dram_active_percent", "percent", "Share of the device memory's bandwidth in use."), &GpuReading::dram_active},
    {gpu("gpu/fp32_active_percent", "percent", "Share of the time in which the fp32 pipes worked."), &GpuReading::fp32_active},
    {gpu("gpu/fp16_active_percent", "percent", "Share of the time in which the fp16 pipes worked."), &GpuReading::fp16_active},
    {gpu("gpu/lost", "", "1 when the GPU fell off the bus, 0 when it answers."), &lost},
    {machine("sampler/ticks", "", "Ticks of the sampler's schedule so far; what is missing between two rows are missed samples.",
             kCounter),
     &ticks},
    {machine("sampler/late_seconds", "seconds", "How far behind its schedule the sample was taken."), &late},
    {machine("sampler/took_seconds", "seconds", "How long reading everything took."), &took},

    train("seconds", "seconds", "Training time since this start of the run."),
    train("epoch", "", "Number of the epoch, from 1."),
    train("steps", "steps", "Optimizer steps the row covers."),
    train("loss", "", "Mean training loss over the row's steps."),
    train("loss_min", "", "Smallest training loss of a step."),
    train("loss_max", "", "Largest training loss of a step."),
    train("accuracy", "ratio", "Share of training samples classified correctly."),
    train("penalty", "", "Mean of what regularisation added to the loss."),
    train("grad_norm", "", "Mean norm of the gradient before clipping."),
    train("grad_norm_max", "", "Largest norm of the gradient before clipping."),
    train("lr", "", "Learning rate of the newest step."),
    train("dropped", "steps", "Steps dropped because their gradient was not finite."),
    train("loss_scale", "",
          "f16: the factor on the loss of the next step; halved by a dropped step, doubled after 2,000 others."),
    train("samples_per_second", "samples/second", "Training samples per second, all members together."),
    train("steps_per_second", "steps/second", "Optimizer steps per second."),
    train("step_ms_p50", "milliseconds", "Median time of a step."),
    train("step_ms_p99", "milliseconds", "Time that one step in a hundred exceeds."),
    train("loader_wait_ms_mean", "milliseconds", "Mean time a step waited for its data."),
    train("loader_wait_ms_median", "milliseconds", "Median time a step waited for its data."),
    train("loader_wait_ms_max", "milliseconds", "Longest time a step waited for its data."),
    train("loader_spikes", "", "Steps that waited more than 50 ms for their data."),
    train("loader_bytes", "bytes", "Streamed data: bytes of training rows moved to the device since the epoch before."),
    train("mix_deviation", "ratio",
          "Streamed data: the largest difference between a class's share of a window and of the training part, over the epoch's "
          "windows."),
    train("flops_per_second", "flop/second",
          "Floating-point operations of the model's matrix products per second of training; absent where steps may leave out "
          "part of them."),
    train("flops_share_percent", "percent", "The same as a share of the device's peak."),
    train("joules_per_sample", "joules/sample", "Energy of the GPU per training sample."),
    train("gpu_utilization_percent", "percent", "Mean of gpu/utilization_percent of the GPU trained on, over the row's time."),
    train("vram_used_bytes", "bytes", "Mean of gpu/memory_used_bytes of the GPU trained on, over the row's time."),
    train("vram_total_bytes", "bytes", "Memory of the GPU trained on."),
    train("cpu_utilization_percent", "percent", "Mean of cpu/utilization_percent over the row's time."),
    train("ram_used_bytes", "bytes", "Mean of ram/used_bytes over the row's time."),
    train("ram_total_bytes", "bytes", "Memory there is."),
    train("component/data_ms", "milliseconds", "Part of an instrumented step: data."),
    train("component/forward_ms", "milliseconds", "Part of an instrumented step: forward pass."),
    train("component/backward_ms", "milliseconds", "Part of an instrumented step: backward pass."),
    train("component/loss_ms", "milliseconds", "Part of an instrumented step: loss."),
    train("component/optimizer_ms", "milliseconds", "Part of an instrumented step: optimizer."),
    train("component/step_ms", "milliseconds", "Whole instrumented step, left out of all speeds."),
    train("train_loss", "", "Mean training loss of the epoch."),
    train("train_accuracy", "ratio", "Share of the epoch's training samples classified correctly."),
    train("validation_loss", "", "Loss on the validation data after the epoch."),
    train("validation_accuracy", "ratio", "Share of the validation data classified correctly."),
    train("macro_f1", "ratio", "Mean F1 of the classes on the validation data, where checkpoint.best_metric is macro_f1."),
    train("epoch_seconds", "seconds", "Time the epoch took, evaluation left out."),
    train("best", "", "1 (true in JSON) when the epoch's weights are the best so far, else 0."),
    train("test_loss", "", "Loss of the best weights on the test data."),
    train("test_accuracy", "ratio", "Share of the test data classified correctly by the best weights."),
    train("best_epoch", "", "Epoch whose weights were tested."),
};

constexpr auto kMetricTable = [] {
    std::array<MetricInfo, std::size(kEntries)> infos{};
    for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = kEntries[i].info;
    return infos;
}();

struct SampleReader {
    const Sample& sample;
    const GpuReading* reading = nullptr;

    Value operator()(std::monostate) const { return std::nullopt; }
    Value operator()(Value CpuReading::*field) const { return sample.cpu.*field; }
    Value operator()(Value MemoryReading::*field) const { return sample.memory.*field; }
    Value operator()(Value DiskReading::*field) const { return sample.disk.*field; }
    Value operator()(Value ProcessReading::*field) const { return sample.process.*field; }
    Value operator()(Value GpuReading::*field) const { return reading->*field; }
    Value operator()(Value (*read)(const GpuReading&)) const { return read(*reading); }
    Value operator()(Value (*read)(const Sample&)) const { return read(sample); }
};

/// Points hold addresses of entries, so the table is never moved.
struct Table {
    static constexpr std::size_t kMost = 1024;
    std::vector<MetricInfo> infos;
    std::unordered_map<std::string_view, const MetricInfo*> by_name;

    Table() {
        infos.reserve(kMost);
        add(kMetricTable);
    }
    void add(std::span<const MetricInfo> metrics) {
        MILLRACE_ASSERT(infos.size() + metrics.size() <= kMost, "too many metrics");
        for (const MetricInfo& metric : metrics)
            if (!by_name.contains(metric.name)) {
                infos.push_back(metric);
                by_name.emplace(metric.name, &infos.back());
            }
    }
};

Table& table() {
    static auto* all = new Table;  // sinks may look for metrics until the very end
    return *all;
}

/// "gpu" and 3 of "gpu3"; nothing when there is no number, or one that no machine has.
std::optional<std::pair<std::string_view, int>> numbered(std::string_view word) {
    const std::size_t digits = word.find_last_not_of("0123456789") + 1;
    int number = 0;
    const auto [end, failure] = std::from_chars(word.data() + digits, word.data() + word.size(), number);
    if (digits == word.size() || failure != std::errc{}) return std::nullopt;
    return std::pair{word.substr(0, digits), number};
}

}  // namespace

std::span<const MetricInfo> metric_table() { return table().infos; }

void add_metrics(std::span<const MetricInfo> metrics) { table().add(metrics); }

const MetricInfo* find_metric(std::string_view name) {
    const auto found = table().by_name.find(name);
    return found == table().by_name.end() ? nullptr : found->second;
}

std::string key_of(const MetricInfo& metric, int index) {
    if (index < 0) return std::string(metric.name);
    const std::string_view rest = metric.name.substr(metric.name.find('/') + 1);
    switch (metric.scope) {
        case MetricScope::kMachine: return std::string(metric.name);
        case MetricScope::kCore: return fmt::format("cpu{}/{}", index, rest);
        case MetricScope::kGpu: return fmt::format("gpu{}/{}", index, rest);
        case MetricScope::kTrain: return fmt::format("member_{:03}/{}", index, metric.name);
    }
    return std::string(metric.name);
}

std::optional<std::pair<const MetricInfo*, int>> metric_of_key(std::string_view key) {
    const auto indexed = [](const MetricInfo& metric) {
        return metric.scope == MetricScope::kGpu || metric.scope == MetricScope::kCore;
    };
    if (const MetricInfo* plain = find_metric(key); plain != nullptr && !indexed(*plain)) return std::pair{plain, -1};
    const std::size_t slash = key.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const auto head = numbered(key.substr(0, slash));
    if (!head) return std::nullopt;
    const std::string_view rest = key.substr(slash + 1);
    const MetricInfo* metric = head->first == "gpu"       ? find_metric(fmt::format("gpu/{}", rest))
                               : head->first == "cpu"     ? find_metric(fmt::format("core/{}", rest))
                               : head->first == "member_" ? find_metric(rest)
                                                          : nullptr;
    // One spelling per key: gpu00 is none, nor is a member of the machine.
    if (metric == nullptr || key_of(*metric, head->second) != key) return std::nullopt;
    return std::pair{metric, head->second};
}

std::vector<Point> points_of(const Sample& sample) {
    std::vector<Point> points;
    points.reserve(std::size(kEntries));
    const auto add = [&](std::size_t at, int index, const Value& value) {
        if (value) points.push_back({&table().infos[at], index, *value});
    };
    for (std::size_t at = 0; at < std::size(kEntries); ++at) {
        const Entry& entry = kEntries[at];
        switch (entry.info.scope) {
            case MetricScope::kMachine: add(at, -1, std::visit(SampleReader{sample}, entry.access)); break;
            case MetricScope::kCore:
                for (std::size_t i = 0; i < sample.cpu.cores.size(); ++i) add(at, static_cast<int>(i), sample.cpu.cores[i]);
                break;
            case MetricScope::kGpu:
                for (std::size_t i = 0; i < sample.gpus.size(); ++i)
                    add(at, static_cast<int>(i), std::visit(SampleReader{sample, &sample.gpus[i]}, entry.access));
                break;
            case MetricScope::kTrain: break;
        }
    }
    return points;
}

}  // namespace millrace::record
