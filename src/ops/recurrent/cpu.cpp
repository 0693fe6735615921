#include <algorithm>
#include <vector>

#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel.h"
#include "ops/recurrent/gru.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

Operand first_columns(const Operand& operand, int cols) {
    Operand part = operand;
    part.cols = cols;
    return part;
}

bool keeps_all(const Operand& flag, int member) { return flag.present() && *flag.at<std::int32_t>(member) == 0; }
bool takes_part(const Operand& mask, int member, int row) { return !mask.present() || *mask.at<float>(member, 0, row) != 0; }

/// Products and gates of one window of columns and one chunk of rows at a time, so that the products never leave the cache. Only
/// rows that take part are packed: the others cost a copy of their state.
class GruForward {
public:
    GruForward(Context& context, const Bound& bound)
        : context_(context),
          b_(bound),
          hidden_(bound[gru_forward::h].cols),
          from_x_(context, first_columns(bound[gru_forward::x], bound[gru_forward::w_ih].cols), bound[gru_forward::w_ih], true),
          from_h_(context, bound[gru_forward::h], bound[gru_forward::w_hh], true),
          windows_(hidden_, 16, 1, kMaxColumns),
          taking_part_(static_cast<std::size_t>(bound[gru_forward::h].k) * static_cast<std::size_t>(bound[gru_forward::h].rows)),
          counts_(static_cast<std::size_t>(bound[gru_forward::h].k)) {
        from_h_.place_behind(from_x_.packed_floats());
        const int longest = std::max(bound[gru_forward::w_ih].cols, hidden_);
        products_at_ = std::max(ForwardProduct::worker_floats(context.simd), static_cast<std::size_t>(longest) * 32);
        context.scratch.reserve_worker(products_at_ + 2 * kChunk * kRowFloats);
    }

    void operator()() noexcept {
        const int members = b_[gru_forward::h].k, rows = b_[gru_forward::h].rows;
        list_rows();
        from_x_.pack(taking_part_.data(), counts_.data());
        from_h_.pack(taking_part_.data(), counts_.data());
        const int chunks = (rows + kChunk - 1) / kChunk;
        const bool parallel = from_x_.parallel() || from_h_.parallel();
        context_.pool.for_each_if(parallel, members * chunks * windows_.count, [&](int task, int worker) {
            const int window = task % windows_.count, chunk = task / windows_.count % chunks;
            block(task / windows_.count / chunks, chunk * kChunk, window, worker);
        });
        keep_others(parallel);
    }

private:
    static constexpr int kChunk = 128;                  ///< rows of a block
    static constexpr int kRowFloats = 3 * kMaxColumns;  ///< r, z, n of one row

    void list_rows() noexcept {
        const Operand& h = b_[gru_forward::h];
        for (int m = 0; m < h.k; ++m) {
            std::int32_t* list = taking_part_.data() + std::ptrdiff_t{m} * h.rows;
            std::int32_t count = 0;
            const bool none = keeps_all(b_[gru_forward::flag], m);
            for (int row = 0; row < h.rows && !none; ++row)
                if (takes_part(b_[gru_forward::mask], m, row)) list[count++] = row;
            counts_[static_cast<std::size_t>(m)] = count;
        }
    }

    void block(int member, int begin, int window, int worker) noexcept {
        namespace at = gru_forward;
        const int rows = std::min(kChunk, counts_[static_cast<std::size_t>(member)] - begin);
        if (rows <= 0) return;
        const int col = windows_.begin(window), cols = windows_.end(window) - col;
        float* products = context_.scratch.worker(worker) + products_at_;
        float* state_products = products + kChunk * kRowFloats;
        for (int gate = 0; gate < 3; ++gate) {
            const ForwardProduct::Block at{member, 0, begin, rows, gate * hidden_ + col, cols};
            from_x_.run(at, products + gate * kMaxColumns, kRowFloats, worker);
            from_h_.run(at, state_products + gate * kMaxColumns, kRowFloats, worker);
        }
        GruGates pass{};
        pass.rows = rows;
        pass.cols = cols;
        pass.from_x = products;
        pass.from_h = state_products;
        pass.product_stride = kRowFloats;
        pass.row = taking_part_.data() + std::ptrdiff_t{member} * b_[at::h].rows + begin;
        pass.b_ih = b_[at::b_ih].at<float>(member) + col;
        pass.b_hh = b_[at::b_hh].at<float>(member) + col;
        pass.hidden = hidden_;
        pass.h = b_[at::h].at<float>(member) + col;
        pass.h_stride = b_[at::h].stride_row;
        pass.out = b_[at::out].at<float>(member) + col;
        pass.out_stride = b_[at::out].stride_row;
        if (b_[at::gates].present()) {
            pass.gates = b_[at::gates].at<float>(member) + col;
            pass.gates_stride = b_[at::gates].stride_row;
        }
        context_.simd.gru_gates(pass);
    }

    void keep_others(bool parallel) noexcept {
        const Operand &old = b_[gru_forward::h], &next = b_[gru_forward::out];
        context_.pool.for_each_if(parallel, old.k, [&](int m, int) {
            const std::int32_t* list = taking_part_.data() + std::ptrdiff_t{m} * old.rows;
            const std::int32_t count = counts_[static_cast<std::size_t>(m)];
            for (int row = 0, i = 0; row < old.rows; ++row) {
                if (i < count && list[i] == row) {
                    ++i;
                    continue;
                }
                std::copy_n(old.at<float>(m, 0, row), hidden_, next.at<float>(m, 0, row));
            }
        });
    }

    Context& context_;
    Bound b_;
    int hidden_;
    ForwardProduct from_x_, from_h_;
    Blocks windows_;
    std::vector<std::int32_t> taking_part_, counts_;
    std::size_t products_at_ = 0;
};

}  // namespace

KernelResult make_gru_forward(Context& context, const Bound& bound) { return make_kernel(GruForward(context, bound)); }

KernelResult make_gru_backward(Context& context, const Bound& bound) {
    namespace at = gru_backward;
    const Operand& state = bound[at::h];
    const int k = state.k, n = state.rows, hidden = state.cols;
    bool empty = bound.params<GruBackwardParams>().begins;  // dh holds nothing yet
    std::vector<std::unique_ptr<Kernel>> products;
    for (int a = at::a0, w = at::w0; a <= at::a3 && bound[a].present(); a += 2, w += 2) {
        MILLRACE_LET(product, make_grad_product(context, bound[a], bound[w], bound[at::dh], false, !empty));
        products.push_back(std::move(product));
        empty = false;
    }
    return make_kernel([&context, b = bound, k, n, hidden, empty, products = std::move(products)]() noexcept {
        for (const auto& product : products) product->run();
        for_each_piece(context, k, n, 5 * hidden, [&](int m, int begin, int end) {
            const bool none = keeps_all(b[at::flag], m);
            for (int row = begin; row < end; ++row) {
                float *back = b[at::dgates].at<float>(m, 0, row), *gradient = b[at::dh].at<float>(m, 0, row);
                if (empty) std::fill_n(gradient, hidden, 0.0f);
                if (!none && takes_part(b[at::mask], m, row))
                    context.simd.gru_row_backward(hidden, b[at::gates].at<float>(m, 0, row), b[at::h].at<float>(m, 0, row), back,
                                                  gradient);
                else
                    std::fill_n(back, 4 * hidden, 0.0f);
            }
        });
    });
}

}  // namespace millrace::ops::cpu
