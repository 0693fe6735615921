#include "nn/pointwise.h"

#include "nn/slot_target.h"
#include "ops/pointwise/pointwise.h"

namespace millrace::nn {

tape::Value pointwise(tape::Builder& builder, const tape::Value& x, const PointwiseOptions& options, const std::string& name) {
    namespace fore = ops::pointwise_forward;
    const tape::Value y = builder.activation(x.view.rows, x.view.cols, name, builder.training() && x.needs_gradient);
    ops::PointwiseParams params{options.activation, builder.training() ? options.dropout : 0, builder.next_op_number()};
    const tensor::View state = params.dropout > 0 ? builder.store().state() : tensor::View{};
    ops::Record record{&ops::pointwise_forward::def, params, {}, 0, name};
    record.slots[fore::x] = x.view;
    record.slots[fore::state] = state;
    record.slots[fore::y] = y.view;
    builder.append(std::move(record));
    if (!y.needs_gradient) return y;

    builder.on_backward([&builder, x, y, params, state, name] {
        namespace back = ops::pointwise_backward;
        const tensor::View dy = builder.gradient(y);
        if (!dy.present()) return;
        ops::Record rule{&ops::pointwise_backward::def, params, {}, 0, name};
        rule.slots[back::dy] = dy;
        rule.slots[back::x] = x.view;
        rule.slots[back::state] = state;
        write_to(rule, back::dx, builder.gradient_target(x));
        builder.append(std::move(rule));
    });
    return y;
}

tape::Value add(tape::Builder& builder, const tape::Value& a, const tape::Value& b, const std::string& name) {
    MILLRACE_ASSERT(a.view.rows == b.view.rows && a.view.cols == b.view.cols && a.view.g == b.view.g, name);
    const tape::Value y =
        builder.activation(a.view.rows, a.view.cols, name, builder.training() && (a.needs_gradient || b.needs_gradient));
    ops::Record record{&ops::add::def, ops::AddParams{}, {}, 0, name};
    record.slots[ops::add::a] = a.view;
    record.slots[ops::add::b] = b.view;
    record.slots[ops::add::out] = y.view;
    builder.append(std::move(record));
    if (!y.needs_gradient) return y;

    builder.on_backward([&builder, a, b, y, name] {
        const tensor::View dy = builder.gradient(y);
        if (!dy.present()) return;
        for (const tape::Value& operand : {b, a}) {
            if (!operand.needs_gradient) continue;
            ops::Record rule{&ops::add::def, ops::AddParams{}, {}, 0, name};
            rule.slots[ops::add::a] = dy;
            write_to(rule, ops::add::out, builder.gradient_target(operand));
            builder.append(std::move(rule));
        }
    });
    return y;
}

}  // namespace millrace::nn
