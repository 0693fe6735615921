#include "sense/gpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "sense/sample.h"

namespace millrace::sense {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// GPM refreshes its counters about every 100 ms; two samples much closer than that say nothing. A little less, so that a tick
/// of a 100 ms schedule that comes early after a late one is not dropped.
constexpr nanoseconds kActivityInterval = milliseconds(80);
/// The throughput calls measure by waiting, 20 ms for each direction: at most 8 % of the interval per GPU.
constexpr nanoseconds kBlockingInterval = milliseconds(500);

constexpr nvml::Metric kMetrics[] = {nvml::kGraphicsActive, nvml::kSmActive,         nvml::kSmOccupancy,
                                     nvml::kTensorActive,   nvml::kDramActive,       nvml::kFp32Active,
                                     nvml::kFp16Active,     nvml::kPcieTransmitRate, nvml::kPcieReceiveRate};

template <class T>
double milli(T value) {
    return static_cast<double>(value) * 1e-3;
}

std::optional<double> percent(double value) {
    // Averages of counters come out a hair above 100 at times.
    if (!std::isfinite(value) || value < 0) return std::nullopt;
    return std::min(value, 100.0);
}

std::uint32_t throttle_bits(unsigned long long reasons) {
    std::uint32_t bits = 0;
    if ((reasons & nvml::kReasonPowerCap) != 0) bits |= kThrottlePowerCap;
    if ((reasons & (nvml::kReasonSoftwareThermal | nvml::kReasonHardwareThermal)) != 0) bits |= kThrottleThermal;
    if ((reasons & nvml::kReasonSyncBoost) != 0) bits |= kThrottleSyncBoost;
    // The general hardware bit comes along with the specific ones; it is only told apart where heat does not explain it.
    const bool brake = (reasons & nvml::kReasonPowerBrake) != 0;
    const bool unexplained = (reasons & nvml::kReasonHardwareSlowdown) != 0 && (reasons & nvml::kReasonHardwareThermal) == 0;
    if (brake || unexplained) bits |= kThrottleHardware;
    return bits;
}

std::string text_of(const char* text, std::size_t size) { return std::string(text, ::strnlen(text, size)); }

}  // namespace

bool Gpu::ok(nvml::Code code) {
    if (code == nvml::kGpuIsLost) lost_ = true;
    if (code == nvml::kSuccess) answers_.any = true;
    if (code == nvml::kNotFound || code == nvml::kUnknown) answers_.strange = true;
    return code == nvml::kSuccess;
}

template <class Function, class... Arguments>
bool Gpu::call(Function function, Arguments... arguments) {
    return function != nullptr && !lost_ && ok(function(device_, arguments...));
}

Gpu::Gpu(const nvml::Api& api, nvml::Device device, int index, int driver_index) : api_(api), device_(device) {
    facts_.index = index;
    facts_.driver_index = driver_index;
    char text[128] = {};
    if (call(api_.name, text, unsigned{sizeof text})) facts_.name = text_of(text, sizeof text);
    if (call(api_.uuid, text, unsigned{sizeof text})) facts_.uuid = text_of(text, sizeof text);
    nvml::Pci pci{};
    if (call(api_.pci, &pci)) facts_.pci_bus = text_of(pci.bus_id, sizeof pci.bus_id);
    GpuReading reading;
    read_memory(reading);
    facts_.memory_total_bytes = reading.memory_total_bytes;
    unsigned value = 0;
    if (call(api_.power_limit, &value)) facts_.power_limit_watts = milli(value);
    facts_.link_bytes_per_second = link_speed();
    open_activity();
    answered_before_ = answers_.any;
}

std::optional<double> Gpu::c2c_speed() {
    constexpr unsigned kMostLinks = 64;
    nvml::Field links{};
    links.id = nvml::kC2cLinks;
    if (!call(api_.fields, 1, &links) || links.code != nvml::kSuccess) return std::nullopt;
    double megabytes = 0;
    for (unsigned link = 0; link < std::min(links.value.number, kMostLinks); ++link) {
        nvml::Field of_link[2]{};
        of_link[0].id = nvml::kC2cLinkActive;
        of_link[1].id = nvml::kC2cLinkMegabytes;
        of_link[0].scope = of_link[1].scope = link;
        if (!call(api_.fields, 2, &of_link[0])) continue;
        const bool answered = of_link[0].code == nvml::kSuccess && of_link[1].code == nvml::kSuccess;
        if (answered && of_link[0].value.number == 1) megabytes += of_link[1].value.number;
    }
    return megabytes > 0 ? std::optional(megabytes * 1e6) : std::nullopt;
}

std::optional<double> Gpu::link_speed() {
    if (const auto speed = c2c_speed()) return speed;  // such GPUs have PCIe besides, which copies do not take
    // An idle link runs at a low generation, so the highest counts; lanes do not come back, so those of now do.
    unsigned generation = 0, lanes = 0;
    if (!call(api_.max_pcie_generation, &generation) && !call(api_.pcie_generation, &generation)) return std::nullopt;
    if ((!call(api_.pcie_width, &lanes) || lanes == 0) && !call(api_.max_pcie_width, &lanes)) return std::nullopt;
    return pcie_bytes_per_second(generation, lanes);
}

void Gpu::open_activity() {
    if (api_.gpm_allocate == nullptr || api_.gpm_free == nullptr || api_.gpm_sample == nullptr || api_.gpm_metrics == nullptr)
        return;
    nvml::GpmSupport support{.version = 1, .supported = 0};
    if (!call(api_.gpm_support, &support) || support.supported == 0) return;
    for (ActivitySample* place : {&earlier_, &later_})
        if (nvml::GpmSample sample = nullptr; ok(api_.gpm_allocate(&sample))) *place = ActivitySample(sample, {&api_});
    facts_.has_activity = activity_has_pcie_ = earlier_ != nullptr && later_ != nullptr;
}

void Gpu::read(nanoseconds now, const std::vector<pid_t>& members, std::size_t neighbours, GpuReading& reading) {
    reading = GpuReading{};
    answers_ = {};
    if (!lost_) {
        read_basics(reading);
        read_memory(reading);
        read_power(reading);
        read_clocks(reading);
        read_processes(members, reading);
        read_activity(now, reading);
        read_pcie(now, neighbours, reading);
        reading.link_bytes_per_second = facts_.link_bytes_per_second;
        // Some drivers say NOT_FOUND or UNKNOWN instead of "lost". From one call that is an error like others; from a GPU of
        // which nothing can be read any more it means the same.
        if (answered_before_ && !answers_.any && answers_.strange) lost_ = true;
        answered_before_ = answered_before_ || answers_.any;
    }
    read_before_ = now;
    if (!lost_) return;
    reading = GpuReading{};
    reading.lost = true;
}

void Gpu::read_basics(GpuReading& reading) {
    nvml::Utilization utilization{};
    if (call(api_.utilization, &utilization)) {
        reading.utilization = percent(utilization.gpu);
        reading.memory_utilization = percent(utilization.memory);
    }
    nvml::TemperatureV1 temperature{.version = nvml::TemperatureV1::kVersion, .sensor = nvml::kDieSensor, .celsius = 0};
    unsigned celsius = 0;
    if (call(api_.temperature_v1, &temperature))
        reading.temperature_celsius = temperature.celsius;
    else if (call(api_.temperature, nvml::kDieSensor, &celsius))
        reading.temperature_celsius = celsius;
    // A chip that answers is warmer than that; some boards say 0 when they have no sensor.
    if (reading.temperature_celsius == 0.0) reading.temperature_celsius.reset();
}

void Gpu::read_memory(GpuReading& reading) {
    nvml::MemoryV2 memory{};
    memory.version = nvml::MemoryV2::kVersion;
    nvml::MemoryV1 older{};
    if (call(api_.memory_v2, &memory)) {
        reading.memory_used_bytes = static_cast<double>(memory.used);  // as nvidia-smi shows it: without the reserved part
        reading.memory_total_bytes = static_cast<double>(memory.total);
    } else if (call(api_.memory_v1, &older)) {
        reading.memory_used_bytes = static_cast<double>(older.used);
        reading.memory_total_bytes = static_cast<double>(older.total);
    }
}

void Gpu::read_power(GpuReading& reading) {
    unsigned value = 0;
    if (call(api_.power_limit, &value) && value > 0) reading.power_limit_watts = milli(value);
    if (call(api_.power, &value)) {
        const double watts = milli(value);
        if (reading.power_limit_watts && watts > 2 * *reading.power_limit_watts) {
            reading.power_implausible = true;
            reading.implausible_power_watts = watts;
        } else {
            reading.power_watts = watts;
        }
    }
    unsigned long long energy = 0;
    if (call(api_.energy, &energy)) reading.energy_joules = milli(energy);
}

void Gpu::read_clocks(GpuReading& reading) {
    unsigned value = 0;
    if (call(api_.clock, nvml::kSmClock, &value)) reading.sm_clock_mhz = value;
    if (call(api_.clock, nvml::kMemoryClock, &value)) reading.memory_clock_mhz = value;
    unsigned long long reasons = 0;
    if (call(api_.clock_reasons, &reasons) || call(api_.throttle_reasons, &reasons)) reading.throttle = throttle_bits(reasons);
}

template <class Entry>
std::optional<std::span<const Entry>> Gpu::list_processes(nvml::Code (*function)(nvml::Device, unsigned*, Entry*)) {
    if (processes_.empty()) processes_.resize(128);
    for (int attempt = 0; attempt < 2 && function != nullptr && !lost_; ++attempt) {
        // Between drivers 530 and 535 the newest call filled entries of 32 bytes instead of 24. Only half of the buffer is
        // offered, so that none can write past its end.
        auto count = static_cast<unsigned>(processes_.size() / 2);
        auto* entries = reinterpret_cast<Entry*>(processes_.data());
        const nvml::Code code = function(device_, &count, entries);
        if (code == nvml::kInsufficientSize && count < 1u << 16) {
            processes_.resize(2 * (std::size_t{count} + 16));
            continue;
        }
        if (!ok(code)) return std::nullopt;
        return std::span<const Entry>(entries, std::min<std::size_t>(count, processes_.size() / 2));
    }
    return std::nullopt;
}

void Gpu::read_processes(const std::vector<pid_t>& members, GpuReading& reading) {
    const auto sum = [&](const auto& entries) {
        for (const auto& entry : entries) {
            const bool ours = std::binary_search(members.begin(), members.end(), static_cast<pid_t>(entry.pid));
            if (!ours || entry.bytes == nvml::kBytesUnknown) continue;
            reading.process_memory_bytes = reading.process_memory_bytes.value_or(0) + static_cast<double>(entry.bytes);
        }
    };
    auto entries = list_processes(api_.processes_v3);
    if (!entries) entries = list_processes(api_.processes_v2);
    if (entries)
        sum(*entries);
    else if (const auto older = list_processes(api_.processes_v1))
        sum(*older);
}

void Gpu::read_activity(nanoseconds now, GpuReading& reading) {
    if (!facts_.has_activity || (earlier_taken_ && now - *earlier_taken_ < kActivityInterval)) return;
    if (!call(api_.gpm_sample, later_.get())) {
        earlier_taken_.reset();  // the next pair would span the gap
        return;
    }
    std::swap(earlier_, later_);
    if (!std::exchange(earlier_taken_, now)) return;
    nvml::GpmMetrics request{};
    request.version = 1;
    request.count = std::size(kMetrics);
    request.earlier = later_.get();
    request.later = earlier_.get();
    for (std::size_t i = 0; i < std::size(kMetrics); ++i) request.metrics[i].id = kMetrics[i];
    if (lost_ || !ok(api_.gpm_metrics(&request))) return;
    std::optional<double>* const places[] = {&reading.graphics_active, &reading.sm_active,   &reading.sm_occupancy,
                                             &reading.tensor_active,   &reading.dram_active, &reading.fp32_active,
                                             &reading.fp16_active};
    for (std::size_t i = 0; i < std::size(places); ++i)
        if (request.metrics[i].code == nvml::kSuccess) *places[i] = percent(request.metrics[i].value);
    const auto rate = [&](const nvml::GpmMetric& metric) -> std::optional<double> {
        if (metric.code != nvml::kSuccess || !std::isfinite(metric.value) || metric.value < 0) return std::nullopt;
        return metric.value * 1024.0 * 1024.0;
    };
    const nvml::GpmMetric &transmit = request.metrics[std::size(places)], &receive = request.metrics[std::size(places) + 1];
    reading.pcie_write_bytes_per_second = rate(transmit);
    reading.pcie_read_bytes_per_second = rate(receive);
    activity_has_pcie_ = transmit.code != nvml::kNotSupported || receive.code != nvml::kNotSupported;
}

void Gpu::read_pcie(nanoseconds now, std::size_t neighbours, GpuReading& reading) {
    const nanoseconds needed = kBlockingInterval * static_cast<std::int64_t>(std::max<std::size_t>(neighbours, 1));
    if (activity_has_pcie_ || !read_before_ || now - *read_before_ < needed) return;
    unsigned kilobytes = 0;
    if (call(api_.pcie_throughput, nvml::kPcieTransmit, &kilobytes)) reading.pcie_write_bytes_per_second = kilobytes * 1e3;
    if (call(api_.pcie_throughput, nvml::kPcieReceive, &kilobytes)) reading.pcie_read_bytes_per_second = kilobytes * 1e3;
}

}  // namespace millrace::sense
