#pragma once
// A source of data that tells when a step is about to run.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "data/batch_source.h"

namespace millrace::train {

/// Calls back before each step.
class HookedSource final : public data::BatchSource {
public:
    using Hook = std::function<void(std::uint64_t step)>;
    HookedSource(std::unique_ptr<data::BatchSource> inner, Hook hook) : inner_(std::move(inner)), hook_(std::move(hook)) {}
    [[nodiscard]] std::int32_t samples(data::Part part) const override { return inner_->samples(part); }
    [[nodiscard]] std::string preparation() const override { return inner_->preparation(); }
    [[nodiscard]] const data::Fields& fields() const override { return inner_->fields(); }
    base::Status declare(tape::Store& store) override { return inner_->declare(store); }
    base::Status upload(tape::Store& store) override { return inner_->upload(store); }
    base::Status await_rows(const data::RowsAhead& rows, const data::StepsDone&) override {
        if (rows.part == data::Part::train && !rows.prefetch) hook_(rows.step);
        return base::ok();
    }
    std::vector<tensor::View> gather(tape::Builder& builder, data::Part part, std::int32_t rows,
                                     std::span<const data::Wanted> fields) override {
        return inner_->gather(builder, part, rows, fields);
    }

private:
    std::unique_ptr<data::BatchSource> inner_;
    Hook hook_;
};

}  // namespace millrace::train
