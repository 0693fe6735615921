#pragma once
// Small programs on the reference backend whose gradients are compared with finite differences.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "nn/dense.h"
#include "tape/program.h"

namespace millrace::nn {

using Network = std::function<void(tape::Builder&)>;

/// A store, and one training program that `network` writes into it.
struct Bench {
    explicit Bench(int members = 1) : backend(ops::make_backend(ops::DeviceKind::ref, {}).value()) {
        tape::StoreOptions options;
        options.precision = tape::Precision::f64;
        options.members = members;
        store = std::make_unique<tape::Store>(*backend, options);
    }
    void build(const Network& network, bool training = true) {
        ASSERT_TRUE(store->allocate().ok());
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < store->members(); ++k) seeds.push_back(static_cast<std::uint64_t>(40 + k));
        store->initialize(seeds);
        tape::BuildOptions options;
        options.training = training;
        tape::Builder builder(*store, options);
        network(builder);
        if (training) builder.backward();
        records = builder.records();
        arena = std::make_unique<tape::Arena>(*backend);
        program = std::make_unique<tape::Program>("bench", *store, std::move(builder), *arena);
        ASSERT_TRUE(arena->allocate().ok());
        auto prepared = program->prepare();
        ASSERT_TRUE(prepared.ok()) << prepared.error().text();
    }
    void fill(const tensor::View& data, std::uint32_t stream) {
        std::vector<double> values(static_cast<std::size_t>(data.count()));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = base::random_normal(1, 0, 0, stream, i);
        program->write(data, values);
    }
    double objective() {
        std::vector<ops::MemberState> states = store->read_states();
        states[0].loss = states[0].penalty = 0;
        states[0].rows = 0;
        store->write_states(states);
        program->run();
        states = store->read_states();
        return states[0].loss / states[0].rows + states[0].penalty;
    }
    void check_parameters() {
        for (std::size_t id = 0; id < store->parameters().size(); ++id) {
            const tape::Parameter& parameter = store->parameters()[id];
            if (parameter.fixed) continue;
            const tensor::View view = store->parameter(static_cast<tape::ParameterId>(id));
            std::vector<double> values = program->read(view);
            objective();
            const std::vector<double> gradient = program->read(store->gradient(static_cast<tape::ParameterId>(id)));
            for (std::size_t i = 0; i < values.size(); ++i) {
                const double kept = values[i], h = 1e-6;
                values[i] = kept + h;
                program->write(view, values);
                const double above = objective();
                values[i] = kept - h;
                program->write(view, values);
                const double below = objective();
                values[i] = kept;
                program->write(view, values);
                EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-6 * (1 + std::abs(gradient[i])))
                    << parameter.names[0] << "[" << i << "]";
            }
        }
    }

    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    std::unique_ptr<tape::Arena> arena;
    std::unique_ptr<tape::Program> program;
    std::vector<ops::Record> records;
};

inline DenseOptions plain(std::int32_t in, std::int32_t out, ops::Activation activation = ops::Activation::none) {
    DenseOptions options;
    options.in = in;
    options.out = out;
    options.activation = activation;
    return options;
}

}  // namespace millrace::nn
