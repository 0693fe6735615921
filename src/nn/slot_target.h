#pragma once
// Records written in one expression, with the bits that say which slots add.

#include <initializer_list>
#include <string>
#include <utility>

#include "ops/dense/dense.h"
#include "ops/op.h"
#include "tape/builder.h"

namespace millrace::nn {

inline void write_to(ops::Record& record, int slot, const tape::Builder::Target& target) {
    record.slots[static_cast<std::size_t>(slot)] = target.view;
    if (target.accumulate) record.accumulate |= 1u << slot;
}

/// What a slot names: a view, a value, or where a gradient goes. `{}` leaves the slot out.
struct Slot : tape::Builder::Target {
    Slot() = default;
    Slot(const tensor::View& v) : Target{v, false} {}
    Slot(const tape::Value& v) : Target{v.view, false} {}
    Slot(const Target& target) : Target(target) {}
};

/// A record whose slots are given in the order of the operator's contract.
template <class Op, class Params>
ops::Record record_of(Op op, const Params& params, std::string layer, std::initializer_list<Slot> slots) {
    ops::Record record{op, params, {}, 0, std::move(layer)};
    int index = 0;
    for (const Slot& slot : slots) write_to(record, index++, slot);
    return record;
}

/// Adds the sums over the rows of `in` [K,G,B,C] to a gradient [K,G,1,C].
inline void append_column_sum(tape::Builder& builder, const tensor::View& in, const tape::Builder::Target& target,
                              const std::string& layer) {
    builder.append_weight_gradient(record_of(&ops::column_sum::def, ops::ColumnSumParams{}, layer, {in, target}));
}

/// Adds dz^T x to a weight's gradient.
inline void append_weight_product(tape::Builder& builder, const tensor::View& dz, const tensor::View& x,
                                  const tape::Builder::Target& target, const std::string& layer) {
    builder.append_weight_gradient(record_of(&ops::linear_wgrad::def, ops::LinearGradParams{}, layer, {dz, x, target}));
}

}  // namespace millrace::nn
