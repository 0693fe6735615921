#include "ops/flops.h"

namespace millrace::ops {
namespace {

/// Every element of `out` is a sum of `depth` products.
std::int64_t product(const tensor::View& out, std::int32_t depth) { return 2 * out.count() * depth; }

}  // namespace

std::int64_t flops_of(const Record& record) {
    const auto slot = [&record](int index) -> const tensor::View& { return record.slots[static_cast<std::size_t>(index)]; };
    switch (record.op) {
        case OpId::dense_forward: return product(slot(dense_forward::y), slot(dense_forward::x).cols);
        case OpId::linear_dgrad: return product(slot(linear_dgrad::w), slot(linear_dgrad::dz).rows);
        case OpId::linear_wgrad: return product(slot(linear_wgrad::dw), slot(linear_wgrad::dz).rows);
        case OpId::gru_forward:
            return product(slot(gru_forward::out), 3 * (slot(gru_forward::w_ih).cols + slot(gru_forward::w_hh).cols));
        default: return 0;
    }
}

}  // namespace millrace::ops
