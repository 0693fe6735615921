#pragma once
// An energy flow model in tests, with vectors and answers written by hand.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "models/energy_flow/energy_flow.h"
#include "models/energy_flow/ops/flow.h"
#include "models/golden.h"
#include "models/model_rig.h"
#include "ops/pointwise/pointwise.h"

namespace millrace::testing {

using models::EnergyFlow;
using models::EnergyFlowConfig;

/// Vectors and answers that the test writes before a program runs, and places in the store where a program may keep what the test
/// reads afterwards: its own memory is used again.
class FedVectors final : public data::BatchSource {
public:
    FedVectors(std::int32_t rows, std::int32_t width, std::int32_t cells, std::int32_t flows)
        : rows_(rows),
          cells_(cells),
          flows_(flows),
          fields_{{"vector", data::Field::Kind::real, width}, {"goal", data::Field::Kind::real, width}} {}
    [[nodiscard]] std::int32_t samples(data::Part) const override { return 1 << 20; }
    [[nodiscard]] const data::Fields& fields() const override { return fields_; }
    base::Status declare(tape::Store& store) override {
        x_ = store.add_data("vectors", tensor::DType::f32, rows_, fields_[0].width);
        const tensor::DType stat = tape::stat_of(store.options().precision);
        goals_ = store.add_data("answers", stat, rows_, fields_[0].width);
        surface = store.add_data("kept surface", stat, rows_, cells_);
        energies = store.add_data("kept energies", stat, rows_, cells_);
        table = store.add_data("kept table", stat, flows_, ops::kFlowColumns);
        counters = store.add_data("kept counters", tensor::DType::i32, 1, ops::kFlowCounters);
        return base::ok();
    }
    base::Status upload(tape::Store&) override { return base::ok(); }
    std::vector<tensor::View> gather(tape::Builder& builder, data::Part, std::int32_t,
                                     std::span<const data::Wanted> fields) override {
        const tensor::View x = fields[0].into;
        const auto for_all = [&](tensor::View shared) {
            shared.k = builder.store().members();
            return shared;
        };
        ops::Record record{&ops::copy::kDef, ops::CopyParams{}, {}, 0, "data"};
        record.slots[ops::copy::in] = for_all(x_);
        record.slots[ops::copy::out] = x;
        builder.append(std::move(record));
        return {x, for_all(goals_)};
    }
    void feed(tape::Store& store, const std::vector<float>& x, const std::vector<float>& goals) const {
        store.write(x_, x.data(), x.size() * sizeof(float));
        const std::vector<double> wide(goals.begin(), goals.end());
        if (goals_.dtype == tensor::DType::f64)
            store.write(goals_, wide.data(), wide.size() * sizeof(double));
        else
            store.write(goals_, goals.data(), goals.size() * sizeof(float));
    }

    tensor::View surface, energies, table, counters;

private:
    std::int32_t rows_, cells_, flows_;
    data::Fields fields_;
    tensor::View x_, goals_;
};

/// A model with its rig.
struct FlowRig {
    explicit FlowRig(const EnergyFlowConfig& config, std::int32_t batch)
        : model(config), source(batch, config.embedding, config.cells(), config.rows(batch)), rows(batch) {}

    base::Status start(ops::DeviceKind device, tape::Precision precision) {
        rig.device = device;
        rig.precision = precision;
        return rig.start(model, source, {1});
    }
    static void keep(tape::Builder& builder, const tensor::View& view, const tensor::View& place) {
        ops::Record record{&ops::copy::kDef, ops::CopyParams{}, {}, 0, "kept"};
        record.slots[ops::copy::in] = view;
        record.slots[ops::copy::out] = place;
        builder.append(std::move(record));
    }
    [[nodiscard]] std::vector<double> kept(const tensor::View& place) {
        std::vector<double> values(static_cast<std::size_t>(place.count()));
        const auto narrow = [&]<class T>(T) {
            std::vector<T> stored(values.size());
            rig.store->read(place, stored.data(), stored.size() * sizeof(T));
            values.assign(stored.begin(), stored.end());
        };
        if (place.dtype == tensor::DType::f64)
            narrow(double{});
        else if (place.dtype == tensor::DType::i32)
            narrow(std::int32_t{});
        else
            narrow(float{});
        return values;
    }
    void load(const Golden& golden, const std::string& prefix) {
        const auto& parameters = rig.store->parameters();
        for (std::size_t id = 0; id < parameters.size(); ++id)
            rig.store->write_parameter(static_cast<tape::ParameterId>(id), 0, 0,
                                       golden.floats(prefix + "." + parameters[id].names[0]));
        rig.store->refresh_copies();
    }
    std::unique_ptr<tape::Program> evaluation() {
        tape::BuildOptions options;
        options.training = false;
        tape::Builder builder(*rig.store, options);
        const models::Outputs outputs = model.build(builder, source, data::Part::validation, rows);
        keep(builder, outputs.prediction.view, source.surface);
        keep(builder, model.energies().view, source.energies);
        keep(builder, model.cube().tables().back(), source.table);
        keep(builder, model.cube().counters(), source.counters);
        return std::make_unique<tape::Program>("eval", *rig.store, std::move(builder), *rig.arena);
    }

    Rig rig;
    EnergyFlow model;
    FedVectors source;
    std::int32_t rows;
};

/// 5 x 4 cells, five steps.
inline EnergyFlowConfig small_flow() {
    EnergyFlowConfig c;
    c.width = 5;
    c.height = 4;
    c.depth = 10;
    c.hidden = 6;
    c.embedding = 9;
    c.noise = 0;
    return c;
}

inline std::vector<float> some_vectors(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(1.7f * static_cast<float>(i) + 0.3f);
    return values;
}

}  // namespace millrace::testing
