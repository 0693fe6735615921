// Large products by oneDNN. Small ones stay with the built-in tiles: they need no second set of threads and give the same bits
// for any number of threads and members, which is also why a deterministic backend never comes here.

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "ops/cpu/gemm.h"

namespace millrace::ops::cpu {
namespace {

using dnnl::memory;
using tensor::Operand;

constexpr std::int64_t kSmallest = std::int64_t{1} << 26;  ///< multiply-adds: about a millisecond on one core

/// [K, G, rows, cols] as oneDNN sees it; an operand that all members or groups share has extent 1 there.
memory::desc describe(const Operand& o, bool transpose) {
    const memory::dim k = o.stride_k == 0 ? 1 : o.k, g = o.stride_g == 0 ? 1 : o.g;
    const memory::dim stride_k = o.stride_k == 0 ? 1 : o.stride_k, stride_g = o.stride_g == 0 ? 1 : o.stride_g;
    if (transpose) return {{k, g, o.cols, o.rows}, memory::data_type::f32, memory::dims{stride_k, stride_g, 1, o.stride_row}};
    return {{k, g, o.rows, o.cols}, memory::data_type::f32, memory::dims{stride_k, stride_g, o.stride_row, 1}};
}

dnnl::matmul::primitive_desc plan(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b, const memory::desc& c,
                                  const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
    return {engine, a, b, c, attributes};
#else
    return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

class OneDnnProduct final : public LibraryProduct {
public:
    OneDnnProduct(Context& context, const Operand& a, bool transpose_a, const Operand& b, bool transpose_b, const Operand& c,
                  bool accumulate)
        : context_(context), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (accumulate) {
            dnnl::post_ops sum;
            sum.append_sum(1.0f);
            attributes.set_post_ops(sum);
        }
        const memory::desc left = describe(a, transpose_a), right = describe(b, transpose_b), out = describe(c, false);
        const dnnl::matmul::primitive_desc planned = plan(engine_, left, right, out, attributes);
        product_ = dnnl::matmul(planned);
        scratch_ = memory(planned.scratchpad_desc(), engine_, nullptr);
        context.scratch.reserve_shared((planned.scratchpad_desc().get_size() + sizeof(float) - 1) / sizeof(float));
        arguments_ = {{DNNL_ARG_SRC, memory(left, engine_, a.data)},
                      {DNNL_ARG_WEIGHTS, memory(right, engine_, b.data)},
                      {DNNL_ARG_DST, memory(out, engine_, c.data)},
                      {DNNL_ARG_SCRATCHPAD, scratch_}};
    }

    // A product that was prepared cannot fail but by a broken invariant, and then the program must end.
    void run() noexcept override {  // NOLINT(bugprone-exception-escape)
        omp_set_num_threads(context_.pool.threads());
        scratch_.set_data_handle(context_.scratch.shared());
        product_.execute(stream_, arguments_);
        stream_.wait();
    }

private:
    Context& context_;
    dnnl::engine engine_;
    dnnl::stream stream_;
    dnnl::matmul product_;
    memory scratch_;
    std::unordered_map<int, memory> arguments_;
};

}  // namespace

std::unique_ptr<LibraryProduct> make_library_product(Context& context, const Operand& a, bool transpose_a, const Operand& b,
                                                     bool transpose_b, const Operand& c, bool accumulate) {
    const std::int64_t depth = transpose_a ? a.rows : a.cols;
    if (context.deterministic || c.count() * depth < kSmallest) return nullptr;
    try {
        return std::make_unique<OneDnnProduct>(context, a, transpose_a, b, transpose_b, c, accumulate);
    } catch (const dnnl::error&) {
        return nullptr;  // a shape the library does not take: the built-in tiles do
    }
}

}  // namespace millrace::ops::cpu
