#include "diagnose/reading/multiprocessors.h"

#include <algorithm>
#include <array>
#include <string>

namespace millrace::diagnose {
namespace {

struct GpuModel {
    std::string_view word;
    std::uint32_t count;
    ComputeCapability capability;
};

/// Words of names that settle it, multiprocessors by data sheet.
constexpr std::array kGpuModels{
    GpuModel{"GH200", 132, {9, 0}}, GpuModel{"H200", 132, {9, 0}}, GpuModel{"H100", 132, {9, 0}}, GpuModel{"H800", 132, {9, 0}},
    GpuModel{"H20", 78, {9, 0}},    GpuModel{"A100", 108, {8, 0}}, GpuModel{"A800", 108, {8, 0}}, GpuModel{"A30", 56, {8, 0}},
    GpuModel{"A40", 84, {8, 6}},    GpuModel{"A6000", 84, {8, 6}}, GpuModel{"A10", 72, {8, 6}},   GpuModel{"3090", 82, {8, 6}},
    GpuModel{"L40", 142, {8, 9}},   GpuModel{"L40S", 142, {8, 9}}, GpuModel{"L4", 58, {8, 9}},    GpuModel{"4090", 128, {8, 9}},
    GpuModel{"V100", 80, {7, 0}},   GpuModel{"T4", 40, {7, 5}},    GpuModel{"B200", 148, {10, 0}}};

struct Limits {
    ComputeCapability capability;
    std::uint32_t threads, blocks, shared_kilobytes;
};
/// CUDA C++ Programming Guide, technical specifications per compute capability. All have 65,536 registers.
constexpr std::array kLimits{Limits{{7, 0}, 2048, 32, 96},   Limits{{7, 5}, 1024, 16, 64},  Limits{{8, 0}, 2048, 32, 164},
                             Limits{{8, 6}, 1536, 16, 100},  Limits{{8, 9}, 1536, 24, 100}, Limits{{9, 0}, 2048, 32, 228},
                             Limits{{10, 0}, 2048, 32, 228}, Limits{{12, 0}, 1536, 24, 100}};
constexpr std::uint32_t kRegisters = 65'536, kWarp = 32;

bool is_same(const ComputeCapability& a, const ComputeCapability& b) { return a.major == b.major && a.minor == b.minor; }

constexpr std::uint32_t rounded_up(std::uint32_t value, std::uint32_t step) { return (value + step - 1) / step * step; }

}  // namespace

void describe_multiprocessors(Timeline& timeline, std::optional<ComputeCapability> capability, std::uint32_t count) {
    const std::vector<std::string> words = words_of_device(timeline.device_name);
    const auto has = [&](std::string_view word) { return std::ranges::find(words, word) != words.end(); };
    if (has("MIG")) return;
    const auto* const model = std::ranges::find_if(kGpuModels, [&](const GpuModel& each) { return has(each.word); });
    if ((!capability || count == 0) && model != kGpuModels.end()) {
        capability = model->capability;
        const bool small_h100 = has("PCIE") && (has("H100") || has("H800"));
        count = small_h100 ? 114 : model->count;
    }
    if (!capability || count == 0) return;
    const auto* const limits =
        std::ranges::find_if(kLimits, [&](const Limits& each) { return is_same(each.capability, *capability); });
    if (limits == kLimits.end()) return;
    const bool reserves = capability->major >= 8;  // a KiB of each block's shared memory is the system's
    timeline.multiprocessors = {count, limits->threads, limits->blocks, limits->shared_kilobytes * 1024, reserves ? 1024u : 0u};
}

std::optional<double> waves_of(const record::LaunchSize& size, const Multiprocessors& gpu) {
    if (gpu.count == 0 || size.blocks == 0 || size.threads == 0 || size.registers == 0) return std::nullopt;
    const std::uint32_t warps = rounded_up(size.threads, kWarp) / kWarp;
    // Registers are given to warps, 256 at a time, on each of four partitions.
    const std::uint32_t warps_by_registers = kRegisters / rounded_up(size.registers * kWarp, 256) / 4 * 4;
    std::uint32_t resident = std::min({gpu.blocks, gpu.threads / kWarp / warps, warps_by_registers / warps});
    const std::uint32_t shared = rounded_up(size.shared_bytes, 128) + gpu.reserved;
    if (shared > 0) resident = std::min(resident, gpu.shared_bytes / shared);
    if (resident == 0) return std::nullopt;
    return static_cast<double>(size.blocks) / (static_cast<double>(gpu.count) * resident);
}

}  // namespace millrace::diagnose
