#pragma once
// Transformer layers over short sequences in tests: a store with the layers, their sequences, and the records of a program as
// rewrites see them.

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/philox.h"
#include "models/model_rig.h"
#include "nn/transformer.h"
#include "ops/rewrite.h"

namespace millrace::nn {

struct SequenceShape {
    int members = 1, groups = 1;
    std::int32_t batch = 3, positions = 37, prefix = 0;
    TransformerOptions options{128, 4, 256, true, 0, false, {}};
    tape::Precision precision = tape::Precision::bf16;
    [[nodiscard]] std::int32_t rows() const { return batch * positions; }
    [[nodiscard]] std::int32_t cols() const { return groups * options.width; }
    [[nodiscard]] std::string name() const {
        return "K" + std::to_string(members) + "G" + std::to_string(groups) + "B" + std::to_string(batch) + "N" +
               std::to_string(positions) + "I" + std::to_string(options.inner) + (options.dropout > 0 ? "Drops" : "") +
               (precision == tape::Precision::f16 ? "F16" : "");
    }
    /// What may differ: rounding adds an eighth in f16.
    [[nodiscard]] double tolerance(double in_bf16) const { return precision == tape::Precision::f16 ? in_bf16 / 4 : in_bf16; }
};
template <class Shape>
Shape in_f16(Shape shape) {
    shape.precision = tape::Precision::f16;
    return shape;
}
/// Three of ten elements behind attention and behind the inner columns become zeros.
inline TransformerOptions dropping(std::int32_t inner) { return {128, 4, inner, true, 0.3f, false, {}}; }

/// The backend and a store in 16 bits. Derived rigs declare more, then call begin().
struct SequenceRig {
    SequenceRig(const SequenceShape& given, std::int32_t depth, ops::DeviceKind device, const std::vector<std::string>& off)
        : shape(given), backend(ops::make_backend(device, {.rewrites_off = off}).value()) {
        tape::StoreOptions options;
        options.precision = shape.precision;
        options.members = shape.members;
        store = std::make_unique<tape::Store>(*backend, options);
        for (std::int32_t d = 0; d < depth; ++d) {
            std::vector<std::string> names;
            for (int g = 0; g < shape.groups; ++g) names.push_back("layers." + std::to_string(d) + "." + std::to_string(g));
            layers.emplace_back(*store, names, shape.options);
        }
        ids = store->add_data("ids", tensor::DType::i32, shape.batch, shape.positions - shape.prefix);
        lengths = store->add_data("lengths", tensor::DType::i32, shape.batch, 1);
    }
    void begin() const {
        EXPECT_TRUE(store->allocate().ok());
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < shape.members; ++k) seeds.push_back(static_cast<std::uint64_t>(40 + k));
        store->initialize(seeds);
        set_step(1);
    }
    /// What dropout goes by, all of it other numbers in another step; members drop with different probabilities. In f16 a mean
    /// over all elements has gradients that need a scale.
    void set_step(std::uint32_t number) const {
        auto states = store->read_states();
        for (std::size_t k = 0; k < states.size(); ++k) {
            states[k].step = number;
            states[k].micro = number % 2;
            states[k].dropout_scale = 1 / static_cast<float>(number + k);
            if (shape.precision == tape::Precision::f16) states[k].loss_scale = 4096;
        }
        store->write_states(states);
    }
    [[nodiscard]] tensor::View for_all(tensor::View view) const {
        view.k = shape.members;
        return view;
    }
    tape::Value through_layers(tape::Builder& builder, tape::Value x) const {
        for (const TransformerLayer& layer : layers)
            x = layer.forward(builder, x, {for_all(ids), for_all(lengths), shape.prefix});
        return x;
    }
    /// Prepares the program, feeds it random values and sequences of several lengths, and runs it; false where it cannot. With
    /// `replayed_step`, that step is run as a replay of what was captured before it.
    bool run(tape::Program& program, tape::Arena& arena, const std::vector<tensor::View>& random,
             std::uint32_t replayed_step = 0) const {
        EXPECT_TRUE(arena.allocate().ok());
        const auto prepared = program.prepare();
        EXPECT_TRUE(prepared.ok()) << (prepared.ok() ? "" : prepared.error().text());
        if (!prepared.ok()) return false;
        std::uint32_t stream = 0;
        for (const tensor::View& view : random) {
            std::vector<double> values(static_cast<std::size_t>(view.count()));
            ++stream;
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = base::random_normal(1, 0, 0, stream, i);
            program.write(view, values);
        }
        const double counts[] = {64, 17, 0, 1, 63};
        std::vector<double> given;
        for (std::int32_t b = 0; b < shape.batch; ++b) given.push_back(std::min<double>(counts[b % 5], shape.positions));
        program.write(lengths, given);
        program.run();
        if (replayed_step > 0) {
            backend->synchronize();
            EXPECT_TRUE(program.capture().ok());
            set_step(replayed_step);
            program.launch();
        }
        backend->synchronize();
        EXPECT_TRUE(backend->check().ok());
        return true;
    }

    SequenceShape shape;
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    std::vector<TransformerLayer> layers;
    tensor::View ids, lengths;
};

/// How many records of the program are that rewrite's.
inline int joined_by(const tape::Program& program, const std::string& rewrite) {
    return static_cast<int>(
        std::ranges::count_if(program.records(), [&](const ops::Record& record) { return record.op->name == rewrite; }));
}

/// The records with addresses that stand for their buffers, as a program has them when rewrites are looked for.
inline std::vector<ops::Bound> stand_ins(const std::vector<ops::Record>& records) {
    std::vector<ops::Bound> all;
    for (const ops::Record& record : records) all.push_back(ops::stand_in(record));
    return all;
}

/// At how many records `match` finds something that can be taken.
inline int taken_by(ops::Match (*match)(const ops::Window&), const std::vector<ops::Record>& records) {
    const auto all = stand_ins(records);
    const ops::Uses uses(all);
    std::vector<std::size_t> numbers(all.size());
    std::iota(numbers.begin(), numbers.end(), std::size_t{0});
    int count = 0;
    for (std::size_t r = 0; r < all.size(); ++r) {
        const ops::Window window{std::span(all).subspan(r), uses, std::span(numbers).subspan(r)};
        const ops::Match found = match(window);
        count += found.count() > 0 && ops::place(found, window).possible ? 1 : 0;
    }
    return count;
}

}  // namespace millrace::nn
