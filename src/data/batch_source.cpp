#include "data/batch_source.h"

#include <fmt/format.h>

namespace millrace::data {

Gathered places_of(tape::Builder& builder, const Fields& fields, std::int32_t rows, std::span<const Wanted> wanted) {
    Gathered gathered{std::vector<tensor::View>(fields.size()), {}};
    for (const Wanted& one : wanted) gathered.fields[field_index(fields, one.field)] = one.into;
    for (std::size_t i = 0; i < fields.size(); ++i)
        if (!gathered.fields[i].present())
            gathered.fields[i] = builder.buffer(1, rows, fields[i].width,
                                                fields[i].kind == Field::Kind::real ? builder.real() : tensor::DType::i32,
                                                tape::Role::activation, fields[i].name);
    for (const Wanted& one : wanted) gathered.wanted.push_back(gathered.fields[field_index(fields, one.field)]);
    return gathered;
}

base::Status ResidentSource::declare(tape::Store& store) {
    fills_.clear();
    return declare_tables(store);
}

base::Status ResidentSource::upload(tape::Store& store) {
    for (const auto& fill : fills_) fill(store);
    return store.backend().check();
}

tensor::View ResidentSource::add_order(tape::Store& store, Part part) {
    return add_table(store, fmt::format("{} order", name_of(part)), tensor::DType::i32, samples(part), 1, order_[index_of(part)]);
}

}  // namespace millrace::data
