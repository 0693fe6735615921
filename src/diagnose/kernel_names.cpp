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
    constexpr std::array<std::string_view, 12> kTensor{"tensorop", "1688", "16816", "tf32", "bf16",   "wgmma",
                                                       "nvjet",    "884",  "hmma",  "imma", "f16f16", "flash_"};
    if (name_has_any(name, kTensor)) return Units::kTensor;
    constexpr std::array<std::string_view, 7> kPlain{"sgemm",  "simt",           "ffma", "f32f32_f32f32_f32",
                                                     "scudnn", "convolve_sgemm", "sgemv"};
    return name_has_any(name, kPlain) ? Units::kPlain : Units::kUnsaid;
}

Units tensor_use_of(std::string_view name) {
    if (is_matrix_kernel(name)) return units_of(name);
    constexpr std::array<std::string_view, 6> kNoProducts{"at::native::", "cub::",       "triton_poi_",
                                                          "triton_red_",  "triton_per_", "multi_tensor_apply"};
    return name_has_any(name, kNoProducts) || is_elementwise(name) ? Units::kPlain : Units::kUnsaid;
}

bool is_elementwise(std::string_view name) {
    constexpr std::array<std::string_view, 2> kParts{"elementwise", "triton_poi_"};
    return name_has_any(name, kParts) || name.starts_with("loop_");  // the last: XLA's
}

std::string_view data_type_of(std::string_view name) {
    struct TypeWord {
        std::string_view word, type;
    };
    // "f16" stands in "bf16", "f32" in "tf32": the narrower and the longer come first.
    constexpr std::array kWords{
        TypeWord{"e4m3", "fp8"},      TypeWord{"e5m2", "fp8"},      TypeWord{"Float8", "fp8"},   TypeWord{"bf16", "bf16"},
        TypeWord{"BFloat16", "bf16"}, TypeWord{"bfloat16", "bf16"}, TypeWord{"nvjet_t", "bf16"}, TypeWord{"_tst_", "bf16"},
        TypeWord{"f16", "f16"},       TypeWord{"fp16", "f16"},      TypeWord{"Half", "f16"},     TypeWord{"half", "f16"},
        TypeWord{"hgemm", "f16"},     TypeWord{"nvjet_h", "f16"},   TypeWord{"_hsh_", "f16"},    TypeWord{"h16816", "f16"},
        TypeWord{"h1688", "f16"},     TypeWord{"h884", "f16"},      TypeWord{"tf32", "tf32"},    TypeWord{"s1688gemm", "tf32"},
        TypeWord{"f32", "f32"},       TypeWord{"fp32", "f32"},      TypeWord{"float", "f32"},    TypeWord{"sgemm", "f32"},
        TypeWord{"sgemv", "f32"},     TypeWord{"f64", "f64"},       TypeWord{"double", "f64"},   TypeWord{"dgemm", "f64"},
        TypeWord{"d884", "f64"},      TypeWord{"int8", "int8"},     TypeWord{"i8i8", "int8"},    TypeWord{"long", "int64"}};
    for (const TypeWord& known : kWords)
        if (name.find(known.word) != std::string_view::npos) return known.type;
    return {};
}

}  // namespace millrace::diagnose
