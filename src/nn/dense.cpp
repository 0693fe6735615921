#include "nn/dense.h"

#include <cmath>
#include <utility>

#include "nn/slot_target.h"
#include "ops/dense/dense.h"

namespace millrace::nn {
DenseOptions linear(std::int32_t in, std::int32_t out, ops::Activation activation, std::optional<tape::Init> init) {
    const tape::Init usual = tape::Init::uniform(1 / std::sqrt(static_cast<double>(in)));
    return {.in = in, .out = out, .activation = activation, .weight_init = std::move(init).value_or(usual)};
}

/// What the backward rule remembers of one forward call. Views are as the product sees them: [K,1,B,G*Out] with a shared input.
struct Dense::Call {
    tape::Value x;
    std::optional<Columns> gradient_columns;
    ops::DenseParams params;
    tensor::View saved, inv_std;
};

Dense::Dense(tape::Store& store, const std::vector<std::string>& linear, const std::vector<std::string>& norm,
             const DenseOptions& options)
    : options_(options), groups_(static_cast<std::int32_t>(linear.size())) {
    MILLRACE_ASSERT(groups_ >= 1 && norm.size() == (options.batch_norm ? linear.size() : 0));
    label_ = label_of(linear);
    const tape::Init init = options.weight_init.value_or(tape::Init::normal(std::sqrt(2.0 / options.in)));
    weight_ = store.add_matrix(with_suffix(linear, ".weight"), options.out, options.in, init, options.parameter_groups);
    if (options.bias)
        bias_ = store.add_vector(with_suffix(linear, ".bias"), options.out, options.bias_init, options.parameter_groups);
    if (!options.batch_norm) return;
    gamma_ = store.add_vector(with_suffix(norm, ".weight"), options.out, tape::Init::value(1), options.parameter_groups);
    beta_ = store.add_vector(with_suffix(norm, ".bias"), options.out, tape::Init::value(0), options.parameter_groups);
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

tensor::View Dense::vector_of(const tape::Store& store, tape::ParameterId id) const {
    return id == tape::kNoParameter ? tensor::View{} : vector(store.parameter(id));
}

/// Where moments of the rows of a matrix go.
static tensor::View moments_of(tape::Builder& builder, const tensor::View& rows, const std::string& name) {
    return builder.buffer(rows.g, ops::moment_chunks(rows.rows), 2 * rows.cols, builder.stat(), tape::Role::scratch, name);
}

tape::Value Dense::forward(tape::Builder& builder, const tape::Value& x, const DensePlacement& placement) const {
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

    Call call{x.split_columns(product_groups), placement.gradient_columns, {}, {}, {}};
    call.params.activation = options_.activation;
    call.params.eps = options_.eps;
    call.params.momentum = options_.momentum;
    // Inside a scan only layers with dropout take one: there would be one per step.
    if (options_.dropout > 0 || !builder.merges_weight_gradients()) call.params.op_number = builder.next_op_number();
    if (options_.batch_norm && training) builder.couple_rows("batch statistics of " + label_);
    if (options_.batch_norm) call.params.norm = training ? ops::Norm::batch_train : ops::Norm::batch_eval;
    if (training) call.params.dropout = options_.dropout;
    if (training && (options_.batch_norm || options_.activation != ops::Activation::none))
        call.saved = builder.intermediate(product_groups, rows, product_out, label_ + ".saved");
    if (training && options_.batch_norm)
        call.inv_std = builder.buffer(product_groups, 1, product_out, builder.stat(), tape::Role::saved, label_ + ".inv_std");

    const tensor::View state = call.params.dropout > 0 ? store.state() : tensor::View{};
    const auto statistic = [&](tape::ParameterId id) {
        return id == tape::kNoParameter ? tensor::View{} : vector(builder.running(id, options_.momentum));
    };
    const ops::OpDef* op = &ops::dense_forward::kDef;
    Slot first = call.x, second = matrix(store.weight(weight_));
    if (call.params.norm == ops::Norm::batch_train) {  // the product and its moments are records of their own
        const tensor::View z =
            builder.buffer(product_groups, rows, product_out, builder.stat(), tape::Role::scratch, label_ + ".z");
        const tensor::View moments = moments_of(builder, z, label_ + ".moments");
        builder.append(record_of(op, ops::DenseParams{}, label_, {first, second, {}, {}, {}, {}, {}, {}, {}, {}, z}));
        builder.append(record_of(&ops::batch_moments::kDef, ops::BatchMomentsParams{}, label_, {z, moments}));
        op = &ops::batch_apply::kDef;
        first = z;
        second = moments;
    }
    builder.append(record_of(op, call.params, label_,
                             {first, second, vector_of(store, bias_), vector_of(store, gamma_), vector_of(store, beta_),
                              statistic(mean_), statistic(variance_), call.saved, call.inv_std, state, y}));
    if (training)
        builder.on_gradient(y, [layer = *this, &builder, call](const tensor::View& dy) { layer.backward(builder, call, dy); });
    return whole;
}

tensor::View Dense::append_dense_backward(tape::Builder& builder, const Call& call, const tensor::View& dy) const {
    const tape::Store& store = builder.store();
    const bool normed = call.params.norm != ops::Norm::none;
    const bool identity = !normed && call.params.activation == ops::Activation::none && call.params.dropout == 0;
    const bool merged = builder.merges_weight_gradients();
    const auto gradient_of = [&](tape::ParameterId id) -> Slot {
        const tape::Builder::Target target = builder.parameter_gradient(id);
        return {vector(target.view), target.accumulate};
    };
    if (merged && !normed && options_.bias)
        builder.append_weight_gradient(
            record_of(&ops::column_sum::kDef, ops::ColumnSumParams{}, label_, {dy, gradient_of(bias_)}));
    if (identity && (!options_.bias || merged)) return dy;
    // A plain layer only sums its bias gradient here, so dz stays where dy is.
    const tensor::View dz =
        identity || merged ? dy : builder.buffer(dy.g, dy.rows, dy.cols, builder.real(), tape::Role::scratch, label_ + ".dz");
    const tensor::View state = call.params.dropout > 0 ? store.state() : tensor::View{};
    const Slot dgamma = normed ? gradient_of(gamma_) : Slot{}, dbeta = normed ? gradient_of(beta_) : Slot{};
    const Slot dbias = !normed && options_.bias && !merged ? gradient_of(bias_) : Slot{};
    const tensor::View gamma = vector_of(store, gamma_), beta = vector_of(store, beta_);
    const ops::OpDef* op = &ops::dense_backward::kDef;
    Slot last = dbias;
    if (normed) {
        last = moments_of(builder, dy, label_ + ".sums");
        builder.append(
            record_of(&ops::batch_moments_backward::kDef, call.params, label_, {dy, call.saved, gamma, beta, last, state}));
        op = &ops::batch_apply_backward::kDef;
    }
    builder.append(
        record_of(op, call.params, label_, {dy, call.saved, gamma, beta, call.inv_std, state, dz, dgamma, dbeta, last}));
    return dz;
}

void Dense::backward(tape::Builder& builder, const Call& call, const tensor::View& dy) const {
    const tensor::View dz = append_dense_backward(builder, call, dy);

    tape::Builder::Target dw = builder.parameter_gradient(weight_);
    dw.view = matrix(dw.view);
    append_weight_product(builder, dz, call.x.view, dw, label_);

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
