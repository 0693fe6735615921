#include "diagnose/reading/gpu_models.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "diagnose/timeline/frames.h"
#include "sense/sample.h"

namespace millrace::diagnose {
namespace {

constexpr unsigned kLanes = 16;
constexpr unsigned kNoPcie = 0;  ///< linked in another way, or not at all

struct LinkModels {
    unsigned generation;
    std::string_view words;
};

/// Words of names that settle it. "L4" and "A2" are words of their own, so whole words count.
constexpr std::array kLinkModels{
    LinkModels{kNoPcie, "GH200 GB200 GB300 GB10 ORIN XAVIER THOR"},
    LinkModels{5, "BLACKWELL B100 B200 B300 H20 H100 H200 H800"},
    LinkModels{4, "ADA A2 A10 A10G A16 A30 A40 A100 A800 L4 L20 L40 L40S"},
    LinkModels{3, "P4 P40 P100 T4 T4G V100 V100S"},
};

bool is_number(std::string_view word) {
    return std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

/// Cards: "RTX 4090", "RTX A6000", "GTX 1080", "Quadro RTX 8000".
std::optional<unsigned> generation_of_card(std::string_view family, std::string_view model) {
    if (family == "GTX") return 3;
    if (family != "RTX" || model.size() < 4) return std::nullopt;
    if (model[0] == 'A' && is_number(model.substr(1))) return 4;
    if (!is_number(model.substr(0, 4))) return std::nullopt;
    const bool for_games = model[1] == '0' && model[2] != '0';  // the others are of Turing, unless a word says Ada or Blackwell
    if (!for_games) return 3;
    if (model[0] >= '5') return 5;
    return model[0] >= '3' ? 4 : 3;
}

/// Words of a device's name in capitals: "NVIDIA", "A100", "SXM4", "80GB".
std::vector<std::string> words_of_device(std::string_view name) {
    std::vector<std::string> words(1);
    for (const char letter : name) {
        const auto byte = static_cast<unsigned char>(letter);
        if (std::isalnum(byte) != 0)
            words.back() += static_cast<char>(std::toupper(byte));
        else if (!words.back().empty())
            words.emplace_back();
    }
    return words;
}

std::optional<unsigned> generation_of(std::string_view name) {
    const std::vector<std::string> words = words_of_device(name);
    for (const LinkModels& models : kLinkModels)
        if (std::ranges::any_of(words, [&](const auto& word) { return is_one_of(word, models.words); })) return models.generation;
    for (std::size_t i = 0; i + 1 < words.size(); ++i)
        if (const auto generation = generation_of_card(words[i], words[i + 1])) return generation;
    return std::nullopt;
}

std::optional<unsigned> generation_of(const ComputeCapability& capability) {
    const auto [major, minor] = capability;
    const bool shares_memory =
        (major == 7 && minor == 2) || (major == 8 && minor == 7) || major == 11 || (major == 12 && minor == 1);
    if (shares_memory) return kNoPcie;
    if (major >= 9 && major <= 12) return 5;
    if (major == 8) return 4;
    if (major >= 5 && major <= 7) return 3;
    return std::nullopt;
}

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

std::optional<double> assumed_link_speed(std::string_view name, std::optional<ComputeCapability> capability) {
    auto generation = generation_of(name);
    if (!generation && capability) generation = generation_of(*capability);
    return generation ? sense::pcie_bytes_per_second(*generation, kLanes) : std::nullopt;
}

void assume_link(Timeline& timeline, std::optional<ComputeCapability> capability) {
    if (timeline.link_bytes_per_second) return;
    timeline.link_bytes_per_second = assumed_link_speed(timeline.device_name, capability);
    timeline.link_is_assumed = timeline.link_bytes_per_second.has_value();
}

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
