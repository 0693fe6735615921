#pragma once
// A source of samples whose fields are tables given by the test, in the order of a real pass.

#include <utility>

#include "data/batch_source.h"
#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::testing {

class TableSource final : public data::BatchSource {
public:
    /// A field and its values, one row per sample.
    struct Table {
        data::Field field;
        std::vector<double> values;
    };
    TableSource(std::int32_t samples, std::vector<Table> tables) : samples_(samples), tables_(std::move(tables)) {
        for (const Table& table : tables_) fields_.push_back(table.field);
    }
    /// All parts have the same samples.
    [[nodiscard]] std::int32_t samples(data::Part) const override { return samples_; }
    [[nodiscard]] const data::Fields& fields() const override { return fields_; }
    base::Status declare(tape::Store& store) override {
        order_ = store.add_data("order", tensor::DType::i32, samples_, 1);
        for (const Table& table : tables_) {
            const bool real = table.field.kind == data::Field::Kind::real;
            const tensor::DType type = real ? tape::stat_of(store.options().precision) : tensor::DType::i32;
            views_.push_back(store.add_data(table.field.name, type, samples_, table.field.width));
        }
        return base::ok();
    }
    base::Status upload(tape::Store& store) override {
        std::vector<double> order;
        for (std::int32_t i = 0; i < samples_; ++i) order.push_back(i);
        write(store, order_, order);
        for (std::size_t i = 0; i < tables_.size(); ++i) write(store, views_[i], tables_[i].values);
        return base::ok();
    }
    std::vector<tensor::View> gather(tape::Builder& builder, data::Part, std::int32_t rows,
                                     std::span<const data::Wanted> wanted) override {
        const ops::GatherRowsParams params{static_cast<std::uint32_t>(samples_), builder.training(), builder.training()};
        std::vector<tensor::View> gathered;
        for (const data::Wanted& each : wanted) {
            const auto at = static_cast<std::size_t>(data::find_field(fields_, each.field) - fields_.data());
            const tensor::DType type = fields_[at].kind == data::Field::Kind::real ? builder.real() : tensor::DType::i32;
            gathered.push_back(each.into.present()
                                   ? each.into
                                   : builder.buffer(1, rows, fields_[at].width, type, tape::Role::activation, fields_[at].name));
            builder.append(tape::record_of(&ops::gather_rows::kDef, params, "data",
                                           {views_[at], order_, builder.store().state(), gathered.back()}));
        }
        return gathered;
    }

private:
    static void write(tape::Store& store, const tensor::View& view, const std::vector<double>& values) {
        const auto as = [&]<class T>(T) {
            const std::vector<T> typed(values.begin(), values.end());
            store.write(view, typed.data(), typed.size() * sizeof(T));
        };
        if (view.dtype == tensor::DType::i32)
            as(std::int32_t{});
        else if (view.dtype == tensor::DType::f64)
            as(double{});
        else
            as(float{});
    }

    std::int32_t samples_;
    std::vector<Table> tables_;
    data::Fields fields_;
    tensor::View order_;
    std::vector<tensor::View> views_;
};

}  // namespace millrace::testing
