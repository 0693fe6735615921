#include "diagnose/timeline/kernel_names.h"

#include <utility>

#include "diagnose/timeline/frames.h"

namespace millrace::diagnose {

bool is_matrix_kernel(std::string_view name) {
    return contains_any(name, "gemm nvjet cutlass xmma wgrad dgrad fprop convolve cudnn fmha flash_ gemv");
}

Units units_of(std::string_view name) {
    if (contains_any(name, "tensorop 1688 16816 tf32 bf16 wgmma nvjet 884 hmma imma f16f16 flash_")) return Units::kTensor;
    return contains_any(name, "sgemm simt ffma f32f32_f32f32_f32 scudnn sgemv") ? Units::kPlain : Units::kUnsaid;
}

Units tensor_use_of(std::string_view name) {
    if (is_matrix_kernel(name)) return units_of(name);
    const bool no_product = contains_any(name, "at::native:: cub:: triton_poi_ triton_red_ triton_per_ multi_tensor_apply");
    return no_product || is_elementwise(name) ? Units::kPlain : Units::kUnsaid;
}

bool is_elementwise(std::string_view name) {
    return contains_any(name, "elementwise triton_poi_") || name.starts_with("loop_");  // the last: XLA's
}

std::string_view data_type_of(std::string_view name) {
    // "f16" stands in "bf16", "f32" in "tf32": the narrower and the longer come first.
    constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
        {"fp8", "e4m3 e5m2 Float8"},
        {"bf16", "bf16 BFloat16 bfloat16 nvjet_t _tst_"},
        {"f16", "f16 fp16 Half half hgemm nvjet_h _hsh_ h16816 h1688 h884"},
        {"tf32", "tf32 s1688gemm"},
        {"f32", "f32 fp32 float sgemm sgemv"},
        {"f64", "f64 double dgemm d884"},
        {"int8", "int8 i8i8"},
        {"int64", "long"}};
    for (const auto& [type, words] : kTypes)
        if (contains_any(name, words)) return type;
    return {};
}

}  // namespace millrace::diagnose
