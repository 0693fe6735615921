#include "ops/peak.h"

#include <array>

namespace millrace::ops {
namespace {

struct Sheet {
    std::string_view name;  ///< part of the driver's name; the first that fits counts
    double half, f32;       ///< 10^12 per second, dense; half: bf16 and f16
};
// From NVIDIA's data sheets and architecture papers; tensor figures with fp32 accumulation.
constexpr std::array kSheets{
    Sheet{"H200", 989.4, 66.9},      Sheet{"H100 NVL", 835.5, 60.0}, Sheet{"H100 PCIe", 756.0, 51.2},
    Sheet{"H100", 989.4, 66.9},      Sheet{"A100", 311.9, 19.5},     Sheet{"L40S", 362.1, 91.6},
    Sheet{"L4", 121.0, 30.3},        Sheet{"RTX 5090 D", 0, 0},      Sheet{"RTX 5090 Laptop", 0, 0},
    Sheet{"RTX 5090", 209.5, 104.8}, Sheet{"RTX 4090 D", 0, 0},      Sheet{"RTX 4090 Laptop", 0, 0},
    Sheet{"RTX 4090", 165.2, 82.6},  Sheet{"RTX 3090 Ti", 0, 0},     Sheet{"RTX 3090", 71.0, 35.6},
};

/// Operations of one multiprocessor per clock.
struct Rate {
    int half, f32;  ///< half: bf16 and f16
};
Rate rate_of(int major, int minor) {
    if (major == 8 && minor == 0) return {2048, 128};
    if (major == 8) return {512, 256};
    if (major == 9) return {4096, 256};
    if (major == 10) return {8192, 256};
    if (major == 12) return {512, 256};
    if (major == 7) return {1024, 128};
    return {0, 0};
}

}  // namespace

std::optional<double> peak_flops(const Chip& chip, tensor::DType operands) {
    const bool half = operands == tensor::DType::bf16 || operands == tensor::DType::f16;
    if (!half && operands != tensor::DType::f32) return std::nullopt;
    if (operands == tensor::DType::bf16 && chip.major < 8) return std::nullopt;
    for (const Sheet& sheet : kSheets)
        if (chip.name.find(sheet.name) != std::string_view::npos) {
            if (sheet.f32 == 0) break;  // a namesake with another number of multiprocessors
            return 1e12 * (half ? sheet.half : sheet.f32);
        }
    const Rate rate = rate_of(chip.major, chip.minor);
    const double peak = static_cast<double>(half ? rate.half : rate.f32) * chip.multiprocessors * chip.clock_hertz;
    if (peak <= 0) return std::nullopt;
    return peak;
}

}  // namespace millrace::ops
