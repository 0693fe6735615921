#pragma once
// Language models in tests: a source of windows that is fed by hand, a store and a training program.

#include "models/k1/k1.h"
#include "models/model_rig.h"
#include "models/transformer/transformer.h"

namespace millrace::testing {

/// Windows of tokens, the same in every gather and every member; the test writes them before a program runs.
class FedWindows final : public data::BatchSource {
public:
    FedWindows(std::int32_t rows, std::int32_t length, std::int32_t vocabulary)
        : rows_(rows),
          fields_{{"tokens", data::Field::Kind::integer, length + 1, vocabulary},
                  {"length", data::Field::Kind::integer, 1, length + 1}} {}
    [[nodiscard]] std::int32_t samples(data::Part) const override { return 1 << 20; }
    [[nodiscard]] const data::Fields& fields() const override { return fields_; }
    base::Status declare(tape::Store& store) override {
        tokens_ = store.add_data("tokens", tensor::DType::i32, rows_, fields_[0].width);
        lengths_ = store.add_data("lengths", tensor::DType::i32, rows_, 1);
        return base::ok();
    }
    base::Status upload(tape::Store&) override { return base::ok(); }
    std::vector<tensor::View> gather(tape::Builder& builder, data::Part, std::int32_t rows,
                                     std::span<const data::Wanted>) override {
        MILLRACE_ASSERT(rows == rows_, "a batch of other rows");
        builder.next_op_number();
        const auto for_all = [&](tensor::View shared) {
            shared.k = builder.store().members();
            return shared;
        };
        return {for_all(tokens_), for_all(lengths_)};
    }
    void feed(tape::Store& store, const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& lengths) const {
        ASSERT_EQ(static_cast<std::int64_t>(tokens.size()), tokens_.count());
        store.write(tokens_, tokens.data(), tokens.size() * sizeof(std::int32_t));
        store.write(lengths_, lengths.data(), lengths.size() * sizeof(std::int32_t));
    }

private:
    std::int32_t rows_;
    data::Fields fields_;
    tensor::View tokens_, lengths_;
};

/// A model with its store, windows and a training program.
struct LanguageRig : Rig {
    std::unique_ptr<models::LanguageModel> model;
    std::unique_ptr<FedWindows> windows;
    std::unique_ptr<tape::Program> training;
    std::int32_t rows = 0;

    base::Status begin(std::unique_ptr<models::LanguageModel> given, std::int32_t count,
                       const std::vector<std::uint64_t>& seeds) {
        model = std::move(given);
        rows = count;
        windows = std::make_unique<FedWindows>(rows, model->language().length, model->language().vocabulary);
        MILLRACE_TRY(start(*model, *windows, seeds));
        training = std::make_unique<tape::Program>(
            "training", *store, train::build_training_step(*store, *model, *windows, settings, {rows, 1, 0}), *arena);
        MILLRACE_TRY(arena->allocate());
        return training->prepare();
    }
    /// Windows of random tokens, all of full length.
    void feed_random(std::uint32_t number) {
        const models::LanguageConfig& c = model->language();
        std::vector<std::int32_t> tokens;
        for (std::int32_t i = 0; i < rows * (c.length + 1); ++i)
            tokens.push_back(static_cast<std::int32_t>(base::random_bits(7, number, 0, 0, static_cast<std::uint64_t>(i)) %
                                                       static_cast<std::uint32_t>(c.vocabulary)));
        windows->feed(*store, tokens, std::vector<std::int32_t>(static_cast<std::size_t>(rows), c.length));
    }
};

}  // namespace millrace::testing
