#include "ops/recurrent/gru.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/gemm.h"
#include "ops/host_kernels.h"
#include "ops/kernels.h"
#include "ops/ref/kernels.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

std::int64_t gru_forward_flops(const Record& r) {
    namespace at = gru_forward;
    return product_flops(r.slots[at::out], 3 * (r.slots[at::w_ih].cols + r.slots[at::w_hh].cols));
}
std::int64_t gru_backward_flops(const Record& r) {
    namespace at = gru_backward;
    std::int64_t sum = 0;
    for (std::size_t a = at::a0; a <= at::a3 && r.slots[a].present(); a += 2)
        sum += product_flops(r.slots[at::dh], r.slots[a].cols);
    return sum;
}

template <class T>
bool takes_part(const Operand& mask, int member, int row) {
    return !mask.present() || *mask.at<T>(member, 0, row) != 0;
}
bool keeps_all(const Operand& flag, int member) { return flag.present() && *flag.at<std::int32_t>(member) == 0; }

/// dgates and dh from the gradient of the state in dh; `empty`: dh holds nothing yet, it is 0.
template <class T>
void gates_back(const Bound& b, int m, int begin, int end, bool empty, const host::Loops<T>& loops) {
    namespace at = gru_backward;
    const int hidden = b[at::h].cols;
    const bool none = keeps_all(b[at::flag], m);
    for (int row = begin; row < end; ++row) {
        T *back = b[at::dgates].at<T>(m, 0, row), *gradient = b[at::dh].at<T>(m, 0, row);
        if (empty) std::fill_n(gradient, hidden, T{});
        if (!none && takes_part<T>(b[at::mask], m, row))
            loops.gru_row_backward(hidden, b[at::gates].at<T>(m, 0, row), b[at::h].at<T>(m, 0, row), back, gradient);
        else
            std::fill_n(back, 4 * hidden, T{});
    }
}

}  // namespace

MILLRACE_OPERATOR_WITH(gru_forward, Phase::forward, gru_forward_flops, {"x"}, {"h"}, {"mask"}, {"flag"}, {"w_ih"}, {"w_hh"},
                       {"b_ih"}, {"b_hh"}, {"scratch", write}, {"gates", write}, {"out", write});
MILLRACE_OPERATOR_WITH(gru_backward, Phase::backward, gru_backward_flops, {"dh", update}, {"gates"}, {"h"}, {"mask"}, {"flag"},
                       {"a0"}, {"w0"}, {"a1"}, {"w1"}, {"a2"}, {"w2"}, {"a3"}, {"w3"}, {"dgates", write});

void gru_forward::check(Checker& c) {
    const auto [k, g, n, hidden] = c.shape(h);
    const int in = c.shape(w_ih).cols, cols = c.shape(x).cols;
    c.require({h, out}, real, {k, 1, n, hidden}).require({x}, real, {k, 1, n, cols}).allow({gates}, real, {k, 1, n, 4 * hidden});
    c.require({w_ih}, real, {k, 1, 3 * hidden, in}).require({w_hh}, real, {k, 1, 3 * hidden, hidden});
    c.require({b_ih, b_hh}, stat, {k, 1, 1, 3 * hidden}).require({scratch}, stat, {k, 1, n, 6 * hidden});
    c.allow({mask}, stat, {k, 1, n, 1}).allow({flag}, i32, {k, 1, 1, 1}).that(cols >= in, "x has fewer columns than w_ih");
    c.that(c[out].buffer != c[h].buffer || c[out].offset != c[h].offset || n == 0, "out must not be the memory of h");
}

void gru_backward::check(Checker& c) {
    const auto [k, g, n, hidden] = c.shape(h);
    c.require({h}, real, {k, 1, n, hidden}).require({gates, dgates}, real, {k, 1, n, 4 * hidden});
    c.require({dh}, stat, {k, 1, n, hidden})
        .allow({mask}, stat, {k, 1, n, 1})
        .allow({flag}, i32, {k, 1, 1, 1})
        .params<GruBackwardParams>();
    for (int a = a0, w = w0; a <= a3; a += 2, w += 2) {
        const int cols = c.shape(a).cols;
        c.allow({a}, real, {k, 1, n, cols}).allow({w}, real, {k, 1, cols, hidden});
        c.needs({a}, c[w].present()).needs({w}, c[a].present());
        if (a > a0) c.needs({a - 2}, c[a].present());  // pairs fill up from 0
    }
}

namespace ref {
namespace {

/// bias[row] + sum over the columns of w.
double affine(const Operand& w, const Operand& bias, int member, int row, const double* x) {
    double sum = bias.at<double>(member)[row];
    const double* weights = w.at<double>(member, 0, row);
    for (int i = 0; i < w.cols; ++i) sum += weights[i] * x[i];
    return sum;
}

}  // namespace

void run_gru_forward(const Bound& bound) {
    namespace at = gru_forward;
    const auto &x = bound[at::x], &h = bound[at::h], &out = bound[at::out], &gates = bound[at::gates];
    const int width = h.cols;
    for (int m = 0; m < h.k; ++m)
        for (int row = 0; row < h.rows; ++row) {
            const double *input = x.at<double>(m, 0, row), *old = h.at<double>(m, 0, row);
            double* next = out.at<double>(m, 0, row);
            const bool live = takes_part<double>(bound[at::mask], m, row) && !keeps_all(bound[at::flag], m);
            for (int j = 0; j < width; ++j) {
                if (!live) {
                    next[j] = old[j];
                    continue;
                }
                const auto both = [&](int gate) {
                    return affine(bound[at::w_ih], bound[at::b_ih], m, gate * width + j, input) +
                           affine(bound[at::w_hh], bound[at::b_hh], m, gate * width + j, old);
                };
                const double r = sigmoid(both(0)), z = sigmoid(both(1));
                const double hn = affine(bound[at::w_hh], bound[at::b_hh], m, 2 * width + j, old);
                const double n = std::tanh(affine(bound[at::w_ih], bound[at::b_ih], m, 2 * width + j, input) + r * hn);
                next[j] = (1 - z) * n + z * old[j];
                if (!gates.present()) continue;
                double* saved = gates.at<double>(m, 0, row);
                saved[j] = r;
                saved[width + j] = z;
                saved[2 * width + j] = n;
                saved[3 * width + j] = hn;
            }
        }
}

void run_gru_backward(const Bound& bound) {
    namespace at = gru_backward;
    const auto& dh = bound[at::dh];
    bool empty = bound.params<GruBackwardParams>().begins;
    for (int pair = at::a0; pair <= at::a3 && bound[pair].present(); pair += 2, empty = false)
        for (int m = 0; m < dh.k; ++m)
            for (int row = 0; row < dh.rows; ++row)
                for (int j = 0; j < dh.cols; ++j) {
                    const auto &a = bound[pair], &w = bound[pair + 1];
                    double sum = 0;
                    for (int i = 0; i < a.cols; ++i) sum += a.at<double>(m, 0, row)[i] * w.at<double>(m, 0, i)[j];
                    store(dh.at<double>(m, 0, row)[j], sum, !empty);
                }
    for (int m = 0; m < dh.k; ++m) gates_back<double>(bound, m, 0, dh.rows, empty, {});
}

}  // namespace ref

namespace cpu {
namespace {

Operand first_columns(const Operand& operand, int cols) {
    Operand part = operand;
    part.cols = cols;
    return part;
}

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
                if (takes_part<float>(b_[gru_forward::mask], m, row)) list[count++] = row;
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
    bool empty = bound.params<GruBackwardParams>().begins;  // dh holds nothing yet
    std::vector<std::unique_ptr<Kernel>> products;
    for (int a = at::a0, w = at::w0; a <= at::a3 && bound[a].present(); a += 2, w += 2) {
        MILLRACE_LET(product, make_grad_product(context, bound[a], bound[w], bound[at::dh], false, !empty));
        products.push_back(std::move(product));
        empty = false;
    }
    return make_kernel([&context, b = bound, state, empty, products = std::move(products)]() noexcept {
        for (const auto& product : products) product->run();
        for_each_piece(context, state.k, state.rows, 5 * state.cols,
                       [&](int m, int begin, int end) { gates_back<float>(b, m, begin, end, empty, context.simd); });
    });
}

}  // namespace cpu
}  // namespace millrace::ops
