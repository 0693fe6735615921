#include "nn/pointwise.h"

#include "nn/slot_target.h"
#include "ops/pointwise/pointwise.h"

namespace millrace::nn {

tape::Value pointwise(tape::Builder& builder, const tape::Value& x, const PointwiseOptions& options, const std::string& name) {
    const tape::Value y = builder.activation(x.view.rows, x.view.cols, name, builder.training() && x.needs_gradient);
    ops::PointwiseParams params{options.activation, builder.training() ? options.dropout : 0, builder.next_op_number()};
    const tensor::View state = params.dropout > 0 ? builder.store().state() : tensor::View{};
    builder.append(record_of(&ops::pointwise_forward::kDef, params, name, {x, state, y}));
    builder.on_gradient(y, [&builder, x, params, state, name](const tensor::View& dy) {
        builder.append(record_of(&ops::pointwise_backward::kDef, params, name, {dy, x, state, builder.gradient_target(x)}));
    });
    return y;
}

tape::Value add(tape::Builder& builder, const tape::Value& a, const tape::Value& b, const std::string& name) {
    MILLRACE_ASSERT(a.view.rows == b.view.rows && a.view.cols == b.view.cols && a.view.g == b.view.g, name);
    const tape::Value y =
        builder.activation(a.view.rows, a.view.cols, name, builder.training() && (a.needs_gradient || b.needs_gradient));
    builder.append(record_of(&ops::add::kDef, ops::AddParams{}, name, {a, b, y}));
    builder.on_gradient(y, [&builder, a, b, name](const tensor::View& dy) {
        for (const tape::Value& operand : {b, a})
            if (operand.needs_gradient)
                builder.append(record_of(&ops::add::kDef, ops::AddParams{}, name, {dy, {}, builder.gradient_target(operand)}));
    });
    return y;
}

}  // namespace millrace::nn
