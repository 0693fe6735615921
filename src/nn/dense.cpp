#include "nn/dense.h"

#include <fmt/format.h>

#include <cmath>

#include "nn/slot_target.h"
#include "ops/dense/dense.h"

namespace millrace::nn {
namespace {

std::vector<std::string> with_suffix(const std::vector<std::string>& prefixes, const char* suffix) {
    std::vector<std::string> names;
    names.reserve(prefixes.size());
    for (const std::string& prefix : prefixes) names.push_back(prefix + suffix);
    return names;
}

}  // namespace

/// What the backward rule remembers of one forward call. Views are as the product sees them: [K,1,B,G*Out] with a shared input.
struct Dense::Call {
    tape::Value x, y;
    std::optional<Columns> gradient_columns;
    ops::DenseParams params;
    tensor::View saved, inv_std;
};

Dense::Dense(tape::Store& store, std::vector<std::string> linear, const std::vector<std::string>& norm,
             const DenseOptions& options)
    : options_(options), groups_(static_cast<std::int32_t>(linear.size())) {
    MILLRACE_ASSERT(groups_ >= 1 && norm.size() == (options.batch_norm ? linear.size() : 0));
    label_ = groups_ == 1 ? linear.front() : fmt::format("{} (x{})", linear.front(), groups_);
    const tape::Init init = options.weight_init.value_or(tape::Init::normal(std::sqrt(2.0 / options.in)));
    weight_ = store.add_matrix(with_suffix(linear, ".weight"), options.out, options.in, init);
    if (options.bias) bias_ = store.add_vector(with_suffix(linear, ".bias"), options.out, options.bias_init);
    if (!options.batch_norm) return;
    gamma_ = store.add_vector(with_suffix(norm, ".weight"), options.out, tape::Init::value(1));
    beta_ = store.add_vector(with_suffix(norm, ".bias"), options.out, tape::Init::value(0));
    mean_ = store.add_vector(with_suffix(norm, ".running_mean"), options.out, tape::Init::value(0), tape::kRunning);
    variance_ = store.add_vector(with_suffix(norm, ".running_var"), options.out, tape::Init::value(1), tape::kRunning);
}

tensor::View Dense::matrix(const tensor::View& groups) const {
    if (!options_.shared_input || groups_ == 1) return groups;
    MILLRACE_ASSERT(groups.stride_g == std::int64_t{groups.rows} * groups.stride_row, label_);
    return groups.merge_groups();
}

tensor::View Dense::vector(const tensor::View& groups) const {
    if (!options_.shared_input || groups_ == 1) return groups;
    MILLRACE_ASSERT(groups.rows == 1 && groups.stride_g == groups.cols, label_);
    tensor::View joined = groups;
    joined.cols = groups.g * groups.cols;
    joined.g = 1;
    joined.stride_g = 0;
    joined.stride_row = joined.cols;
    return joined;
}

tape::Value Dense::forward(tape::Builder& builder, const tape::Value& x, const DensePlacement& placement) const {
    namespace slot = ops::dense_forward;
    const tape::Store& store = builder.store();
    const bool training = builder.training();
    const std::int32_t rows = x.view.rows;
    const std::int32_t product_groups = options_.shared_input ? 1 : groups_;
    const std::int32_t product_out = options_.shared_input ? groups_ * options_.out : options_.out;
    MILLRACE_ASSERT(x.view.g == 1 && x.view.cols == product_groups * options_.in, label_);

    const tape::Value whole =
        placement.into ? *placement.into : builder.activation(rows, groups_ * options_.out, label_, training);
    tape::Value y = whole;
    if (whole.view.g == 1) y = whole.split_columns(product_groups);
    MILLRACE_ASSERT(y.view.g == product_groups && y.view.cols == product_out && y.view.rows == rows, label_);

    Call call{x.split_columns(product_groups), y, placement.gradient_columns, {}, {}, {}};
    call.params.activation = options_.activation;
    call.params.eps = options_.eps;
    call.params.momentum = options_.momentum;
    // Inside a scan only layers with dropout take one: there would be one per step.
    if (options_.dropout > 0 || !builder.merges_weight_gradients()) call.params.op_number = builder.next_op_number();
    if (options_.batch_norm) call.params.norm = training ? ops::Norm::batch_train : ops::Norm::batch_eval;
    if (training) call.params.dropout = options_.dropout;
    if (training && (options_.batch_norm || options_.activation != ops::Activation::none))
        call.saved = builder.intermediate(product_groups, rows, product_out, label_ + ".saved");
    if (training && options_.batch_norm)
        call.inv_std = builder.buffer(product_groups, 1, product_out, builder.stat(), tape::Role::saved, label_ + ".inv_std");

    ops::Record record{&ops::dense_forward::kDef, call.params, {}, 0, label_};
    record.slots[slot::x] = call.x.view;
    record.slots[slot::w] = matrix(store.weight(weight_));
    if (options_.bias) record.slots[slot::bias] = vector(store.parameter(bias_));
    if (options_.batch_norm) {
        record.slots[slot::gamma] = vector(store.parameter(gamma_));
        record.slots[slot::beta] = vector(store.parameter(beta_));
        record.slots[slot::running_mean] = vector(store.parameter(mean_));
        record.slots[slot::running_var] = vector(store.parameter(variance_));
    }
    record.slots[slot::saved] = call.saved;
    record.slots[slot::inv_std] = call.inv_std;
    if (call.params.dropout > 0) record.slots[slot::state] = store.state();
    record.slots[slot::y] = y.view;
    builder.append(std::move(record));
    if (training) builder.on_backward([layer = *this, &builder, call] { layer.backward(builder, call); });
    return whole;
}

tensor::View Dense::append_dense_backward(tape::Builder& builder, const Call& call, const tensor::View& dy) const {
    namespace slot = ops::dense_backward;
    const tape::Store& store = builder.store();
    const bool normed = call.params.norm != ops::Norm::none;
    const bool identity = !normed && call.params.activation == ops::Activation::none && call.params.dropout == 0;
    const bool merged = builder.merges_weight_gradients();
    auto gradient_of = [&](tape::ParameterId id) {
        tape::Builder::Target target = builder.parameter_gradient(id);
        target.view = vector(target.view);
        return target;
    };
    if (merged && !normed && options_.bias) append_column_sum(builder, dy, gradient_of(bias_), label_);
    if (identity && (!options_.bias || merged)) return dy;
    // A plain layer only sums its bias gradient here, so dz stays where dy is.
    const tensor::View dz =
        identity || merged ? dy : builder.buffer(dy.g, dy.rows, dy.cols, builder.real(), tape::Role::scratch, label_ + ".dz");
    ops::Record record{&ops::dense_backward::kDef, call.params, {}, 0, label_};
    record.slots[slot::dy] = dy;
    record.slots[slot::saved] = call.saved;
    record.slots[slot::inv_std] = call.inv_std;
    if (call.params.dropout > 0) record.slots[slot::state] = store.state();
    record.slots[slot::dz] = dz;
    if (normed) {
        record.slots[slot::gamma] = vector(store.parameter(gamma_));
        record.slots[slot::beta] = vector(store.parameter(beta_));
        write_to(record, slot::dgamma, gradient_of(gamma_));
        write_to(record, slot::dbeta, gradient_of(beta_));
    } else if (options_.bias && !merged) {
        write_to(record, slot::dbias, gradient_of(bias_));
    }
    builder.append(std::move(record));
    return dz;
}

void Dense::backward(tape::Builder& builder, const Call& call) const {
    const tensor::View dy = builder.gradient(call.y);
    if (!dy.present()) return;
    const tensor::View dz = append_dense_backward(builder, call, dy);

    tape::Builder::Target dw = builder.parameter_gradient(weight_);
    dw.view = matrix(dw.view);
    append_weight_product(builder, dz, call.x.view, dw, label_);

    // Last, so that the layer below continues right behind it: backends fuse that pair.
    if (!call.x.needs_gradient) return;
    tape::Value part = call.x;
    tensor::View w = matrix(builder.store().weight(weight_));
    if (call.gradient_columns) {
        part = part.columns(call.gradient_columns->begin, call.gradient_columns->width);
        w = w.columns(call.gradient_columns->begin, call.gradient_columns->width);
    }
    builder.add_product(part, dz, w, label_);
}

}  // namespace millrace::nn
