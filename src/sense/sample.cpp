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

}  // namespace millrace::sense
