// Matrix products through cuBLASLt: descriptors and algorithm are chosen once, the run only enqueues.

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ops/cuda/context.h"
#include "ops/cuda/cublas.h"
#include "ops/cuda/forms.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

base::Result<const CublasLt*> load() {
    const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* reason = dlerror();
        return base::Error{fmt::format("cuBLASLt could not be loaded: {}; LD_LIBRARY_PATH may name its folder",
                                       reason != nullptr ? reason : name)};
    }
    static CublasLt all;
    const char* missing = nullptr;
    const auto find = [&](auto& function, const char* symbol) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
        if (function == nullptr && missing == nullptr) missing = symbol;
    };
    find(all.create, "cublasLtCreate");
    find(all.destroy, "cublasLtDestroy");
    find(all.status_string, "cublasLtGetStatusString");
    find(all.matmul, "cublasLtMatmul");
    find(all.layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(all.desc_destroy, "cublasLtMatmulDescDestroy");
    find(all.layout_create, "cublasLtMatrixLayoutCreate");
    find(all.layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(all.desc_create, "cublasLtMatmulDescCreate");
    find(all.desc_set, "cublasLtMatmulDescSetAttribute");
    find(all.preference_create, "cublasLtMatmulPreferenceCreate");
    find(all.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(all.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(all.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    if (missing != nullptr)
        return base::Error{fmt::format("{} has no {}; another version of CUDA would be right", name, missing)};
    return &all;
}

/// Loaded by the backend before it makes a kernel.
const CublasLt& cublas() { return **load_cublas(); }

cudaDataType_t type_of(DType t) { return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F; }

/// cuBLASLt sees a row-major matrix as its transpose. One product: c^T = op(first) op(second).
struct Layouts {
    cublasLtMatrixLayout_t first = nullptr, second = nullptr, out = nullptr;
    cublasLtMatmulDesc_t desc = nullptr;
    Layouts() = default;
    Layouts(const Layouts&) = delete;
    Layouts& operator=(const Layouts&) = delete;
    ~Layouts() {
        if (first) cublas().layout_destroy(first);
        if (second) cublas().layout_destroy(second);
        if (out) cublas().layout_destroy(out);
        if (desc) cublas().desc_destroy(desc);
    }
};

cublasLtMatrixLayout_t layout(const Operand& o, int batch, std::int64_t stride) {
    cublasLtMatrixLayout_t l = nullptr;
    // Row-major [rows, cols] with row stride ld is column-major [cols, rows].
    if (cublas().layout_create(&l, type_of(o.dtype), static_cast<std::uint64_t>(o.cols), static_cast<std::uint64_t>(o.rows),
                               o.stride_row) != CUBLAS_STATUS_SUCCESS)
        return nullptr;
    cublas().layout_set(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    cublas().layout_set(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return l;
}

std::uint32_t alignment(const Operand& o) {
    const auto bits = reinterpret_cast<std::uintptr_t>(o.data) |
                      static_cast<std::uintptr_t>(o.stride_row) * tensor::size_of(o.dtype) |
                      static_cast<std::uintptr_t>(o.stride_g) * tensor::size_of(o.dtype) |
                      static_cast<std::uintptr_t>(o.stride_k) * tensor::size_of(o.dtype);
    return static_cast<std::uint32_t>(std::min<std::uintptr_t>(bits & (~bits + 1), 256));
}

class ProductKernel final : public Kernel {
public:
    ProductKernel(Context& c, const Operand& left, const Operand& right, const Operand& out, bool accumulate)
        : context_(c), first_(left), second_(right), out_(out), beta_(accumulate ? 1.0f : 0.0f) {}

    /// bias: added to every row of a product of one matrix; null: none.
    bool plan(cublasOperation_t first_op, cublasOperation_t second_op, const void* bias = nullptr) {
        // Batch over groups, loop over members; with one group, batch over members.
        by_member_ = out_.g == 1;
        const int batch = by_member_ ? out_.k : out_.g;
        auto stride = [&](const Operand& o) { return by_member_ ? o.stride_k : o.stride_g; };
        l_.first = layout(first_, batch, stride(first_));
        l_.second = layout(second_, batch, stride(second_));
        l_.out = layout(out_, batch, stride(out_));
        if (!l_.first || !l_.second || !l_.out) return false;
        const bool tf32 = context_.tf32 && first_.dtype == DType::f32 && second_.dtype == DType::f32;
        const cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
        if (cublas().desc_create(&l_.desc, compute, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS) return false;
        cublas().desc_set(l_.desc, CUBLASLT_MATMUL_DESC_TRANSA, &first_op, sizeof first_op);
        cublas().desc_set(l_.desc, CUBLASLT_MATMUL_DESC_TRANSB, &second_op, sizeof second_op);
        if (bias != nullptr) {
            const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
            cublas().desc_set(l_.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
            cublas().desc_set(l_.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
        }
        return choose();
    }

    void run() noexcept override {
        const float alpha = 1;
        for (int k = 0; k < library_launches(out_); ++k) {
            auto at = [k](const Operand& o) {
                return static_cast<std::byte*>(o.data) + k * o.stride_k * static_cast<std::int64_t>(tensor::size_of(o.dtype));
            };
            const cublasStatus_t status = cublas().matmul(context_.lt, l_.desc, &alpha, at(first_), l_.first, at(second_),
                                                          l_.second, &beta_, at(out_), l_.out, at(out_), l_.out, &algorithm_,
                                                          context_.workspace, context_.workspace_bytes, context_.stream);
            if (status != CUBLAS_STATUS_SUCCESS && context_.product_status == 0) context_.product_status = status;
        }
    }

private:
    bool choose() {
        cublasLtMatmulPreference_t preference = nullptr;
        if (cublas().preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return false;
        auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
            cublas().preference_set(preference, which, &value, sizeof value);
        };
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, context_.workspace_bytes);
        // Partial sums in 16 bits would cost precision that the contract promises.
        const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
        const std::uint32_t a = alignment(first_), b = alignment(second_), c = alignment(out_);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
        cublasLtMatmulHeuristicResult_t found{};
        int found_count = 0;
        const cublasStatus_t status =
            cublas().heuristic(context_.lt, l_.desc, l_.first, l_.second, l_.out, l_.out, preference, 1, &found, &found_count);
        cublas().preference_destroy(preference);
        if (status != CUBLAS_STATUS_SUCCESS || found_count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return false;
        algorithm_ = found.algo;
        return true;
    }

    Context& context_;
    Operand first_, second_, out_;
    float beta_;
    bool by_member_ = true;
    Layouts l_;
    cublasLtMatmulAlgo_t algorithm_{};
};

/// The library's kernel, null where it has none for the shape.
KernelPtr make_library_product(Context& c, Product kind, const Operand& a, const Operand& b, const Operand& out,
                               bool accumulate) {
    // forward: z^T = w x^T; dgrad: dx^T = w^T dz^T; wgrad: dw^T = x^T dz.
    auto kernel = std::make_unique<ProductKernel>(c, b, a, out, accumulate);
    const cublasOperation_t first = kind == Product::forward ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = kind == Product::wgrad ? CUBLAS_OP_T : CUBLAS_OP_N;
    return kernel->plan(first, second) ? KernelPtr(std::move(kernel)) : nullptr;
}

bool multiplies_parts(const Context& c, Product kind, const Operand& a, const Operand& b, const Operand& out) {
    if (a.dtype != DType::f32 || b.dtype != DType::f32 || out.dtype != DType::f32) return false;
    if (!can_take_parts(c)) return false;
    constexpr const char* kSubjects[] = {"split_forward", "split_dgrad", "split_wgrad"};
    const int summed = kind == Product::wgrad ? a.rows : a.cols;
    return decide(c, kSubjects[static_cast<int>(kind)], c.records.subspan(c.at, 1),
                  parts_product_time(c, out, summed) < plain_product_time(c, out, summed, DType::f32));
}

}  // namespace

base::Result<const CublasLt*> load_cublas() {
    static const auto* loaded = new base::Result<const CublasLt*>(load());
    return *loaded;
}

KernelPtr make_biased_product(Context& c, const Operand& x, const Operand& w, const Operand& bias, const Operand& z) {
    if (multiplies_parts(c, Product::forward, x, w, z)) return {};
    auto kernel = std::make_unique<ProductKernel>(c, w, x, z, false);
    return kernel->plan(CUBLAS_OP_T, CUBLAS_OP_N, bias.data) ? std::move(kernel) : KernelPtr{};
}

KernelResult make_product(Context& c, Product kind, const Operand& a, const Operand& b, const Operand& out, bool accumulate) {
    if (out.count() == 0) return make_kernel([] {});
    const bool empty = kind == Product::wgrad ? a.rows == 0 : a.cols == 0;
    // The algorithm cuBLASLt picks depends on the batch count; pinned runs take the kernel whose sums depend on nothing but the
    // shape.
    if (!c.deterministic && !empty) {
        if (multiplies_parts(c, kind, a, b, out)) {
            Operand a_parts, b_parts;
            MILLRACE_LET(parts, make_parts(c, kind, a, b, a_parts, b_parts));
            if (KernelPtr product = make_library_product(c, kind, a_parts, b_parts, out, accumulate))
                return in_order({std::move(parts), std::move(product)});
        }
        if (KernelPtr product = make_library_product(c, kind, a, b, out, accumulate)) return product;
    }
    return make_kernel(
        [stream = c.stream, kind, a, b, out, accumulate] { launch_plain_product(stream, kind, a, b, out, accumulate); });
}

}  // namespace millrace::ops::cuda
