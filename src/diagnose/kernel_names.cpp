#include "diagnose/kernel_names.h"

#include <algorithm>
#include <array>

namespace millrace::diagnose {
namespace {

template <std::size_t N>
bool name_has_any(std::string_view text, const std::array<std::string_view, N>& parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

}  // namespace

bool is_matrix_kernel(std::string_view name) {
    constexpr std::array<std::string_view, 12> kParts{"gemm",  "nvjet",    "cutlass", "xmma", "wgrad",  "dgrad",
                                                      "fprop", "convolve", "cudnn",   "fmha", "flash_", "gemv"};
    return name_has_any(name, kParts);
}

Units units_of(std::string_view name) {
    constexpr std::array<std::string_view, 7> kTensor{"tensorop", "1688", "16816", "tf32", "bf16", "wgmma", "nvjet"};
    if (name_has_any(name, kTensor)) return Units::kTensor;
    constexpr std::array<std::string_view, 7> kPlain{"sgemm",  "simt",           "ffma", "f32f32_f32f32_f32",
                                                     "scudnn", "convolve_sgemm", "sgemv"};
    return name_has_any(name, kPlain) ? Units::kPlain : Units::kUnsaid;
}

}  // namespace millrace::diagnose
