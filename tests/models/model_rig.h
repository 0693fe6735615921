#pragma once
// Trains small models in tests: a source that is fed by hand, and a store, a model and its programs in one place.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"
#include "ops/backend.h"
#include "ops/pointwise/pointwise.h"
#include "optim/settings.h"
#include "tape/program.h"
#include "train/step_program.h"

namespace millrace::testing {

/// Gives every gather a buffer of its own that the test writes before the program runs; members share it.
class FedSource final : public data::BatchSource {
public:
    struct Feed {
        std::int32_t rows = 0;
        tensor::View x, labels;
        bool taken = false;
    };
    FedSource(std::int32_t features, std::int32_t classes, const std::vector<std::int32_t>& rows)
        : fields_{{"image", data::Field::Kind::real, features}, {"label", data::Field::Kind::integer, 1, classes}} {
        for (std::int32_t count : rows) feeds_.push_back({count, {}, {}, false});
    }
    [[nodiscard]] std::int32_t samples(data::Part) const override { return 1 << 20; }
    [[nodiscard]] const data::Fields& fields() const override { return fields_; }
    base::Status declare(tape::Store& store) override {
        for (std::size_t i = 0; i < feeds_.size(); ++i) {
            feeds_[i].x = store.add_data("x" + std::to_string(i), tensor::DType::f32, feeds_[i].rows, fields_[0].width);
            feeds_[i].labels = store.add_data("labels" + std::to_string(i), tensor::DType::i32, feeds_[i].rows, 1);
        }
        return base::ok();
    }
    base::Status upload(tape::Store&) override { return base::ok(); }
    std::vector<tensor::View> gather(tape::Builder& builder, data::Part, std::int32_t rows,
                                     std::span<const data::Wanted> fields) override {
        const tensor::View x = fields[0].into;
        builder.next_op_number();
        auto feed = std::find_if(feeds_.begin(), feeds_.end(), [&](const Feed& f) { return !f.taken && f.rows == rows; });
        MILLRACE_ASSERT(feed != feeds_.end(), "no feed of that many rows is left");
        feed->taken = true;
        auto for_all = [&](tensor::View shared) {
            shared.k = builder.store().members();
            return shared;
        };
        ops::Record record{&ops::copy::kDef, ops::CopyParams{}, {}, 0, "data"};
        record.slots[ops::copy::in] = for_all(feed->x);
        record.slots[ops::copy::out] = x;
        builder.append(std::move(record));
        return {x, for_all(feed->labels)};
    }
    void feed(tape::Store& store, std::size_t index, const std::vector<float>& x, const std::vector<std::int32_t>& labels) const {
        ASSERT_EQ(static_cast<std::int64_t>(x.size()), feeds_.at(index).x.count());
        ASSERT_EQ(static_cast<std::int64_t>(labels.size()), feeds_.at(index).labels.count());
        store.write(feeds_[index].x, x.data(), x.size() * sizeof(float));
        store.write(feeds_[index].labels, labels.data(), labels.size() * sizeof(std::int32_t));
    }

private:
    data::Fields fields_;
    std::vector<Feed> feeds_;
};

/// A model whose first build of each program leaves its logits where the program's memory plan cannot take them back.
class WithKeptLogits final : public models::Model {
public:
    explicit WithKeptLogits(std::unique_ptr<models::Model> inner) : inner_(std::move(inner)) {}
    base::Status declare(tape::Store& store) override { return inner_->declare(store); }
    [[nodiscard]] data::Fields wants() const override { return inner_->wants(); }
    models::Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override {
        models::Outputs outputs = inner_->build(builder, source, part, rows);
        tensor::View copy =
            builder.buffer(1, rows, outputs.prediction.view.cols, builder.stat(), tape::Role::scratch, "kept logits");
        ops::Record record{&ops::copy::kDef, ops::CopyParams{}, {}, 0, "kept logits"};
        record.slots[ops::copy::in] = outputs.prediction.view;
        record.slots[ops::copy::out] = copy;
        builder.append(std::move(record));
        kept.push_back(copy);
        return outputs;
    }
    std::vector<tensor::View> kept;  ///< by build, [K,1,rows,classes]

private:
    std::unique_ptr<models::Model> inner_;
};

struct Rig {
    ops::DeviceKind device = ops::DeviceKind::ref;
    tape::Precision precision = tape::Precision::f64;
    int members = 1;
    bool deterministic = true, tf32 = false;
    std::vector<std::string> rewrites_off, forms;
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    std::unique_ptr<tape::Arena> arena;
    optim::OptimizerSettings settings;

    /// Declares and allocates; the caller then builds programs, calls arena->allocate() and prepare().
    base::Status start(models::Model& model, data::BatchSource& source, const std::vector<std::uint64_t>& seeds) {
        MILLRACE_TRY(optim::validate(settings, members));
        ops::BackendOptions backend_options;
        backend_options.deterministic = deterministic;
        backend_options.tf32 = tf32;
        backend_options.rewrites_off = rewrites_off;
        backend_options.forms = forms;
        MILLRACE_LET(made, ops::make_backend(device, backend_options));
        backend = std::move(made);
        tape::StoreOptions options;
        options.members = members;
        options.precision = precision;
        options.ring_capacity = 16;
        optim::request_arenas(settings, options);
        store = std::make_unique<tape::Store>(*backend, options);
        MILLRACE_TRY(model.declare(*store));
        MILLRACE_TRY(source.declare(*store));
        MILLRACE_TRY(store->allocate());
        store->initialize(seeds);
        MILLRACE_TRY(source.upload(*store));
        auto states = store->read_states();
        optim::apply(settings, states);
        // Of f16: large enough for small gradients, small enough that no sound step overflows.
        if (precision == tape::Precision::f16)
            for (ops::MemberState& state : states) state.loss_scale = 256;
        store->write_states(states);
        arena = std::make_unique<tape::Arena>(*backend);
        return base::ok();
    }
};

/// Why tests cannot run on a device here; empty when they can.
inline std::string missing(ops::DeviceKind device) {
    if (device != ops::DeviceKind::cuda) return "";
    auto gpu = ops::cuda_available();
    return gpu.ok() ? "" : gpu.error().text();
}

/// ||a - b|| / max(||b||, tiny).
inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
        norm += double{b[i]} * b[i];
    }
    return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-12);
}

/// By name, those of members beyond the first with "@member".
using Tensors = std::map<std::string, std::vector<float>>;

/// Every trained tensor of every member, from one of the store's arenas.
inline Tensors trained_tensors(tape::Store& store, tape::Store::Arena arena) {
    Tensors tensors;
    const auto& parameters = store.parameters();
    for (std::size_t id = 0; id < parameters.size(); ++id)
        for (int k = 0; k < store.members() && !parameters[id].fixed; ++k)
            for (std::size_t group = 0; group < parameters[id].names.size(); ++group)
                tensors[parameters[id].names[group] + (k == 0 ? "" : "@" + std::to_string(k))] =
                    store.read_parameter(static_cast<tape::ParameterId>(id), static_cast<int>(group), k, arena);
    return tensors;
}

/// The gradients of a first step of Adam without clipping and loss scale: ten times its first moments. A step need not store
/// gradients.
inline Tensors first_gradients(tape::Store& store) {
    Tensors tensors = trained_tensors(store, tape::Store::Arena::first_moment);
    for (auto& [name, values] : tensors)
        for (float& value : values) value *= 10;
    return tensors;
}

/// Members whose first step of Adam found another norm than that of its gradients; all groups train, no clipping, no loss scale.
inline std::string norms_apart(tape::Store& store) {
    std::string text;
    const auto& parameters = store.parameters();
    const std::vector<ops::MemberState> states = store.read_states();
    for (int k = 0; k < store.members(); ++k) {
        double squares = 0;
        for (std::size_t id = 0; id < parameters.size(); ++id)
            for (std::size_t group = 0; group < parameters[id].names.size() && !parameters[id].fixed; ++group)
                for (const float m : store.read_parameter(static_cast<tape::ParameterId>(id), static_cast<int>(group), k,
                                                          tape::Store::Arena::first_moment))
                    squares += 100 * double{m} * m;
        const double norm = std::sqrt(squares), found = states[static_cast<std::size_t>(k)].grad_norm;
        if (!(std::abs(found - norm) <= 1e-5 * norm))
            text += "member " + std::to_string(k) + ": " + std::to_string(found) + " instead of " + std::to_string(norm) + "; ";
    }
    return text;
}

/// Names and distances of the tensors that differ by more than `tolerance` of their own norm. A tensor whose norm is below
/// `smallest` of the root mean square over all elements is held to that: a gradient that is zero but for rounding (a bias in
/// front of batch norm) has no scale of its own.
inline std::string tensors_apart(const Tensors& found, const Tensors& wanted, double tolerance, double smallest = 0.05) {
    double squares = 0;
    std::size_t elements = 0;
    for (const auto& [name, values] : wanted) {
        for (const float v : values) squares += double{v} * v;
        elements += values.size();
    }
    const double mean = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(elements, 1)));
    std::string text;
    for (const auto& [name, values] : wanted) {
        const auto at = found.find(name);
        if (at == found.end() || at->second.size() != values.size()) {
            text += name + " is missing; ";
            continue;
        }
        double apart = 0, norm = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            apart += (double{at->second[i]} - values[i]) * (double{at->second[i]} - values[i]);
            norm += double{values[i]} * values[i];
        }
        const double floor = smallest * mean * std::sqrt(static_cast<double>(values.size()));
        const double distance = std::sqrt(apart) / std::max({std::sqrt(norm), floor, 1e-30});
        if (!(distance <= tolerance)) text += name + " by " + std::to_string(distance) + "; ";
    }
    return text;
}

}  // namespace millrace::testing
