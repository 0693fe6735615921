#include "ops/flops.h"

namespace millrace::ops {
namespace {

/// Every element of `out` is a sum of `depth` products.
std::int64_t product(const tensor::View& out, std::int32_t depth) { return 2 * out.count() * depth; }

/// Every place against every place of its sentence: what is masked is not known before a run, and counts.
std::int64_t attention_product(const tensor::View& values, const tensor::View& lengths) {
    return lengths.rows == 0 ? 0 : product(values, values.rows / lengths.rows);
}

}  // namespace

std::int64_t flops_of(const Record& record) {
    const auto slot = [&record](int index) -> const tensor::View& { return record.slots[static_cast<std::size_t>(index)]; };
    switch (record.op) {
        case OpId::dense_forward: return product(slot(dense_forward::y), slot(dense_forward::x).cols);
        case OpId::linear_dgrad: return product(slot(linear_dgrad::w), slot(linear_dgrad::dz).rows);
        case OpId::linear_wgrad: return product(slot(linear_wgrad::dw), slot(linear_wgrad::dz).rows);
        case OpId::gru_forward:
            return product(slot(gru_forward::out), 3 * (slot(gru_forward::w_ih).cols + slot(gru_forward::w_hh).cols));
        case OpId::attention_forward:
            return 2 * attention_product(slot(attention_forward::out), slot(attention_forward::lengths));
        case OpId::attention_backward:  // scores again, and the gradients of weights, values, queries and keys
            return 5 * attention_product(slot(attention_backward::dout), slot(attention_backward::lengths));
        case OpId::gru_backward: {
            std::int64_t sum = 0;
            for (int a = gru_backward::a0; a <= gru_backward::a3 && slot(a).present(); a += 2)
                sum += product(slot(gru_backward::dh), slot(a).cols);
            return sum;
        }
        default: return 0;
    }
}

}  // namespace millrace::ops
