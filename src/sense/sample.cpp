#include "sense/sample.h"

#include <array>
#include <utility>

namespace millrace::sense {

std::string throttle_text(std::uint32_t bits) {
    constexpr std::array<std::pair<Throttle, const char*>, 4> kNames = {{{kThrottlePowerCap, "power cap"},
                                                                         {kThrottleThermal, "thermal"},
                                                                         {kThrottleHardware, "hardware slow-down"},
                                                                         {kThrottleSyncBoost, "sync boost"}}};
    std::string text;
    for (const auto& [bit, name] : kNames)
        if ((bits & bit) != 0) text += text.empty() ? name : std::string(", ") + name;
    return text;
}

std::optional<double> pcie_bytes_per_second(unsigned generation, unsigned lanes) {
    struct Lane {
        double transfers;  ///< per second, one bit each
        double coding;     ///< share of the bits that are data
    };
    // 8b/10b at first, then 128b/130b; from generation 6 on 236 of the 256 bytes of a flit carry packets.
    constexpr std::array kLanes{Lane{2.5e9, 8.0 / 10},   Lane{5e9, 8.0 / 10},     Lane{8e9, 128.0 / 130},
                                Lane{16e9, 128.0 / 130}, Lane{32e9, 128.0 / 130}, Lane{64e9, 236.0 / 256},
                                Lane{128e9, 236.0 / 256}};
    if (generation < 1 || generation > kLanes.size() || lanes < 1 || lanes > 32) return std::nullopt;
    const Lane& lane = kLanes[generation - 1];
    return lane.transfers * lane.coding / 8 * lanes;
}

}  // namespace millrace::sense
