#include "diagnose/reading/assumed_link.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "sense/sample.h"

namespace millrace::diagnose {
namespace {

constexpr unsigned kLanes = 16;
constexpr unsigned kNoPcie = 0;  ///< linked in another way, or not at all

struct LinkModel {
    std::string_view word;
    unsigned generation;
};

/// Words of names that settle it. "L4" and "A2" are words of their own, so whole words count.
constexpr std::array kModels{
    LinkModel{"GH200", kNoPcie}, LinkModel{"GB200", kNoPcie},  LinkModel{"GB300", kNoPcie}, LinkModel{"GB10", kNoPcie},
    LinkModel{"ORIN", kNoPcie},  LinkModel{"XAVIER", kNoPcie}, LinkModel{"THOR", kNoPcie},  LinkModel{"BLACKWELL", 5},
    LinkModel{"B100", 5},        LinkModel{"B200", 5},         LinkModel{"B300", 5},        LinkModel{"H20", 5},
    LinkModel{"H100", 5},        LinkModel{"H200", 5},         LinkModel{"H800", 5},        LinkModel{"ADA", 4},
    LinkModel{"A2", 4},          LinkModel{"A10", 4},          LinkModel{"A10G", 4},        LinkModel{"A16", 4},
    LinkModel{"A30", 4},         LinkModel{"A40", 4},          LinkModel{"A100", 4},        LinkModel{"A800", 4},
    LinkModel{"L4", 4},          LinkModel{"L20", 4},          LinkModel{"L40", 4},         LinkModel{"L40S", 4},
    LinkModel{"P4", 3},          LinkModel{"P40", 3},          LinkModel{"P100", 3},        LinkModel{"T4", 3},
    LinkModel{"T4G", 3},         LinkModel{"V100", 3},         LinkModel{"V100S", 3},
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

std::optional<unsigned> generation_of(std::string_view name) {
    const std::vector<std::string> words = words_of_device(name);
    for (const LinkModel& model : kModels)
        if (std::ranges::find(words, model.word) != words.end()) return model.generation;
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

}  // namespace

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

}  // namespace millrace::diagnose
